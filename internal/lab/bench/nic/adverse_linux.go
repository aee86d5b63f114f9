package nic

import (
	"roced.io/roced/internal/lab/netlab"
)

// condition is a condition that affects some kinds of port more than others.
type condition struct {
	name  string
	rules []string // the sender's fault rules
	args  []string
	extra string // settings of the daemons
}

// Names of the conditions that a ratio compares.
const (
	noFaults       = "64 KiB WRITE"
	sprayedBatches = "64 KiB WRITE by irn over 64 source ports, 16 packets in a row on each"
)

var conditions = []condition{
	{noFaults, nil, []string{"write-bw", "-s", "64k"}, ""},
	{"64 KiB WRITE, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k"}, ""},
	{"64 KiB WRITE by irn, 1 % lost", []string{"tx drop p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"64 KiB WRITE by irn, 1 % overtaken by 8", []string{"tx reorder 8 p=0.01 seed=5"}, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"4 KiB WRITE, 1000 QPs", nil, []string{"write-bw", "-s", "4k", "-q", "1000", "-t", "16", "-Q", "4", "-r", "1"}, ""},
	{"64 KiB WRITE by irn", nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, ""},
	{"64 KiB WRITE by mrc with NSCC", nil, []string{"write-bw", "-s", "64k", "--profile", "mrc"}, nscc},
	{"64 KiB WRITE by irn over 64 source ports", nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, oneByOne},
	{sprayedBatches, nil, []string{"write-bw", "-s", "64k", "--profile", "irn"}, inBatches},
}

// Settings of daemons with sprayed packets, and with NSCC. Its round trip and its target suit processes that wait for
// processors, not links.
const (
	nscc      = "    transports: {mrc: {paths: {ev_count: 16, batch: 16}, congestion: {name: nscc, line_rate_bps: 40e9, base_rtt_us: 100, target_delay_us: 2000}}}\n"
	oneByOne  = "    transports: {irn: {paths: {name: spray, paths: 64}}}\n"
	inBatches = "    transports: {irn: {paths: {name: spray, paths: 64, batch: 16}}}\n"
)

// adversePorts are the ports to compare.
var adversePorts = []kind{
	{name: "TAP"},
	{name: "AF_PACKET", shared: "packet"},
	{name: "UDP sockets", shared: "udp"},
}

func adverseName(port, condition string) string { return condition + ", over " + port }

// adverse measures ports under adverse conditions.
func (b *bench) adverse() error {
	for i := range conditions {
		c := &conditions[i]
		for j := range adversePorts {
			if err := b.underCondition(c, &adversePorts[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// underCondition measures one port under one condition.
func (b *bench) underCondition(c *condition, k *kind) error {
	extra := "    profiles: [rc, irn, mrc]\n" + c.extra
	return b.Lab(netlab.LabOptions{Shared: [2]string{k.shared, k.shared}, Extra: extra}, func(l *netlab.Lab) error {
		if err := l.SetFaults(b.ctx, 0, c.rules...); err != nil {
			return err
		}
		return b.median(adverseName(k.name, c.name), "Gb/s", func() (float64, error) { return gbps(b.Roceperf(l, b.Seconds, c.args...)) })
	})
}

// adverseRatios compare UDP sockets with a TAP, and irn sprayed in batches with rc.
func adverseRatios() (out []ratio) {
	for _, c := range conditions {
		out = append(out, ratio{"UDP sockets against TAP: " + c.name, adverseName("UDP sockets", c.name), adverseName("TAP", c.name), 1, false})
	}
	for _, p := range adversePorts {
		out = append(out, ratio{p.name + ": " + sprayedBatches + ", against rc", adverseName(p.name, sprayedBatches), adverseName(p.name, noFaults), 0.8, false})
	}
	return out
}
