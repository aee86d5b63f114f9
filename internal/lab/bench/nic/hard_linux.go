package main

import (
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// hardship is a condition that affects some kinds of port more than others.
type hardship struct {
	name  string
	rules []string // the sender's fault rules
	args  []string
	extra string // settings of the daemons
}

// Names of the hardships that a ratio compares.
const (
	hardNone    = "64 KiB WRITE"
	hardBatches = "64 KiB WRITE by irn over 64 source ports, 16 packets in a row on each"
)

var hardships = []hardship{
	{hardNone, nil, []string{"write-bw", "-s", "64k"}, ""},
	{"64 KiB WRITE, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k"}, ""},
	{"64 KiB WRITE by irn, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"64 KiB WRITE by irn, 1 % overtaken by 8", []string{"tx reorder 8 p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"4 KiB WRITE, 1000 QPs", nil, []string{"write-bw", "-s", "4k", "-q", "1000", "-t", "16", "-Q", "4", "-r", "1"}, ""},
	{"64 KiB WRITE by irn", nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"64 KiB WRITE by mrc with NSCC", nil, []string{"write-bw", "-s", "64k", "--profile", "mrc"}, nscc},
	{"64 KiB WRITE by irn over 64 source ports", nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, oneByOne},
	{hardBatches, nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, inBatches},
}

// Settings of daemons with sprayed packets, and with NSCC. Its round trip and its target suit processes that wait for
// processors, not links.
const (
	nscc      = "    transports: {mrc: {paths: {ev_count: 16, batch: 16}, congestion: {name: nscc, line_rate_bps: 40e9, base_rtt_us: 100, target_delay_us: 2000}}}\n"
	oneByOne  = "    transports: {irn: {paths: {name: spray, paths: 64}}}\n"
	inBatches = "    transports: {irn: {paths: {name: spray, paths: 64, batch: 16}}}\n"
)

// hardPorts are the ports to compare.
var hardPorts = []kind{
	{name: "TAP"},
	{name: "AF_PACKET", shared: "packet"},
	{name: "UDP sockets", shared: "udp"},
}

func hardName(port, hardship string) string { return hardship + ", over " + port }

// hard measures ports under adverse conditions.
func (b *bench) hard() error {
	for i := range hardships {
		h := &hardships[i]
		for j := range hardPorts {
			if err := b.suffer(h, &hardPorts[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// suffer measures one port under one condition.
func (b *bench) suffer(h *hardship, k *kind) error {
	extra := "    profiles: [rc, irn, mrc]\n" + h.extra
	return b.Lab(netlab.LabOptions{Shared: [2]string{k.shared, k.shared}, Extra: extra}, func(l *netlab.Lab) error {
		if err := l.SetFaults(b.ctx, 0, h.rules...); err != nil {
			return err
		}
		return b.median(hardName(k.name, h.name), "Gb/s", func() (float64, error) { return gbps(measure.Perf(l, float64(b.Seconds), h.args...)) })
	})
}

// hardRatios compare UDP sockets with a TAP, and irn sprayed in batches with rc.
func hardRatios() (out []ratio) {
	for _, h := range hardships {
		out = append(out, ratio{"UDP sockets against TAP: " + h.name, hardName("UDP sockets", h.name), hardName("TAP", h.name), 1, false})
	}
	for _, p := range hardPorts {
		out = append(out, ratio{p.name + ": " + hardBatches + ", against rc", hardName(p.name, hardBatches), hardName(p.name, hardNone), 0.8, false})
	}
	return out
}
