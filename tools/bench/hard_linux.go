package main

import (
	"roced.io/roced/internal/netlab"
	"roced.io/roced/tools/internal/measure"
)

// hardship is a condition that affects some kinds of port more than others.
type hardship struct {
	name  string
	rules []string // the sender's fault rules
	args  []string
}

var hardships = []hardship{
	{"64 KiB WRITE, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k"}},
	{"64 KiB WRITE by irn, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}},
	{"64 KiB WRITE by irn, 1 % overtaken by 8", []string{"tx reorder 8 p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}},
	{"4 KiB WRITE, 1000 QPs", nil, []string{"write-bw", "-s", "4k", "-q", "1000", "-t", "16", "-Q", "4", "-r", "1"}},
	{"64 KiB WRITE by irn over 64 source ports", nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}},
}

// hardPorts are the ports to compare.
var hardPorts = []kind{
	{name: "TAP"},
	{name: "AF_PACKET", shared: "packet"},
	{name: "UDP sockets", shared: "udp"},
}

const manyPorts = "    profiles: [rc, irn]\n    transports: {irn: {paths: {name: spray, paths: 64}}}\n"

func hardName(port string, h *hardship) string { return h.name + ", over " + port }

// hard measures ports under adverse conditions.
func (b *bench) hard() error {
	for i := range hardships {
		h := &hardships[i]
		for j := range hardPorts {
			extra := "    profiles: [rc, irn]\n"
			if i == len(hardships)-1 {
				extra = manyPorts
			}
			if err := b.suffer(h, &hardPorts[j], extra); err != nil {
				return err
			}
		}
	}
	return nil
}

// suffer measures one port under one condition.
func (b *bench) suffer(h *hardship, k *kind, extra string) error {
	return b.Lab(netlab.LabOptions{Shared: [2]string{k.shared, k.shared}, Extra: extra}, func(l *netlab.Lab) error {
		if err := l.SetFaults(b.ctx, 0, h.rules...); err != nil {
			return err
		}
		return b.median(hardName(k.name, h), "Gb/s", func() (float64, error) { return gbps(measure.Perf(l, float64(b.Seconds), h.args...)) })
	})
}

// hardRatios compare UDP sockets with a TAP.
func hardRatios() (out []ratio) {
	for i := range hardships {
		h := &hardships[i]
		out = append(out, ratio{"UDP sockets against TAP: " + h.name, hardName("UDP sockets", h), hardName("TAP", h), 1, false})
	}
	return out
}
