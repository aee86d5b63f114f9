// Package loss measures the effect of losses and reordering on each transport profile, on real frames between two
// network namespaces. The NIC injects the faults, by seed. Compare only shares of a profile's own
// goodput without faults: machines differ and are noisy.
package loss

import (
	"fmt"
	"io"
	"slices"

	"roced.io/roced/internal/lab/bench/measure"
)

// subject is a profile with its settings.
type subject struct {
	name      string
	yaml      string // of the NIC's entry
	line      string // ... added on a line with a fixed rate
	busy      string // ... added where only the processors limit the rate
	goal      bool   // keeps 90 % of its goodput at 1 % loss
	spray     bool   // ... and under packet spraying
	collapses bool   // falls below half at 1 % loss
	spread    bool   // chooses paths itself
	evs       bool   // ... among 16, which it excludes when they lose packets
}

// window fits into Eunomia's largest bitmap, 256 packets. It is several times the data in flight, so that a sender
// continues while it waits for a timeout.
const window = "    max_unacked: 240\n"

// Timeouts are a few round trips. A round trip takes 2.2 ms on the line, and 0.2 to 1 ms where only the processors
// limit.
var subjects = []subject{
	{name: "rc: go-back-N", yaml: "    profile: rc\n", line: rate, busy: flight, collapses: true},
	{name: "irn", goal: true, yaml: "    profile: irn\n",
		line: rate + "    transports: {irn: {reorder: {bdp_packets: 240}, recovery: {bdp_packets: 240, rto_low_us: 5000, rto_high_us: 6000}}}\n",
		busy: flight + "    transports: {irn: {reorder: {bdp_packets: 240}, recovery: {bdp_packets: 240, rto_low_us: 1000, rto_high_us: 2000}}}\n"},
	{name: "melo", goal: true, yaml: "    profile: melo\n",
		line: rate + "    transports: {melo: {recovery: {rto_us: 6000}}}\n",
		busy: flight + "    transports: {melo: {recovery: {rto_us: 2000}}}\n"},
	{name: "mp-rdma", spray: true, spread: true, yaml: "    profile: mp-rdma\n",
		line: "    transports: {mp-rdma: {recovery: {rto_us: 6000}, congestion: {name: static, rate_bps: 1e9, window_bytes: 393216}}}\n", busy: "    transports: {mp-rdma: {recovery: {rto_us: 2000}}}\n"},
	{name: "eunomia over selective repeat", goal: true, spray: true, yaml: "    profile: eunomia\n",
		line: rate + "    transports: {eunomia: {recovery: {selective_repeat: 1, rto_us: 3200}}}\n",
		busy: flight + "    transports: {eunomia: {recovery: {selective_repeat: 1, rto_us: 1000}}}\n"},
	{name: "the same, last packets held at the sender", yaml: "    profile: eunomia\n",
		line: rate + "    transports: {eunomia: {hold_last: sender, recovery: {selective_repeat: 1, rto_us: 3200}}}\n",
		busy: flight + "    transports: {eunomia: {hold_last: sender, recovery: {selective_repeat: 1, rto_us: 1000}}}\n"},
	{name: "eunomia over go-back-N", yaml: "    profile: eunomia\n",
		line: rate + "    transports: {eunomia: {hold_last: sender, recovery: {rto_us: 3200}}}\n",
		busy: flight + "    transports: {eunomia: {hold_last: sender, recovery: {rto_us: 1000}}}\n"},
	{name: "mrc with NSCC", goal: true, spray: true, spread: true, evs: true, yaml: "    profile: mrc\n",
		line: "    transports: {mrc: {paths: {ev_count: 16}, recovery: {rto_us: 6000}, " +
			"congestion: {name: nscc, line_rate_bps: 1e9, base_rtt_us: 2400, target_delay_us: 1200}}}\n",
		busy: "    transports: {mrc: {paths: {ev_count: 16}, recovery: {rto_us: 2000}, " +
			"congestion: {name: nscc, line_rate_bps: 100e9, base_rtt_us: 400, target_delay_us: 4000, measure_base_rtt: 0, max_cwnd_bytes: 262144}}}\n"},
}

// result has the samples of a subject on a network, by condition.
type result map[string]sample

// share is the goodput under a condition as a share of the goodput under its base condition.
func (r result) share(c condition) float64 { return r[c.name].Gbps / r[c.base].Gbps }

// Part returns the part of the benchmark.
func Part() measure.Part {
	p := measure.Part{Name: "loss", Short: "Measure transports under packet loss and reordering", Title: "Losses and disorder",
		Run: measure.Run{Seconds: 2, Rounds: 3}, Measure: write}
	for _, s := range subjects {
		p.Lines = append(p.Lines, s.name)
	}
	return p
}

// write measures everything and writes the report.
func write(run *measure.Run, w io.Writer) error {
	chosen := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !run.Selects(s.name) })
	fmt.Fprint(w, about)
	for _, n := range networks {
		var results []result
		for _, s := range chosen {
			r, err := medians(run, &n, &s)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", n.name, s.name, err)
			}
			results = append(results, r)
		}
		n.write(w, chosen, results)
	}
	return writeMemory(w)
}
