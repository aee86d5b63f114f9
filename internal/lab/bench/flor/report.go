package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// idle is a rule that matches no frame. NICs with rules send single frames, and all compared runs must do so.
const idle = "both drop qpn=0xfffffe"

// lossy returns a rule that loses one frame in the given number, in both directions.
func lossy(one int) string { return fmt.Sprintf("both drop p=%.8f seed=7", 1/float64(one)) }

// carriers are the transports of calls.
var carriers = []struct{ name, option string }{{"Flor, UC", "-c uc"}, {"Flor, RC", "-c rc"}, {"plain RC", "-c plain"}}

// fixed is a window that does not shrink, as in 7.3: losses and processors limit the throughput, not congestion
// control.
const fixed = " --window 4194304"

// line is a rate of 1 Gb/s. At this rate the transport is the bottleneck, not the processors.
const line = "    congestion: {algorithm: static, rate_bps: 1e9}\n"

// sections are the labs, and the parts of the report that are measured in each.
var sections = []struct {
	extra string // configuration of the NICs
	parts []part
}{
	{"", []part{{"bandwidth", (*bench).bandwidth}, {"rate", (*bench).rate}, {"latency", (*bench).latency}, {"switchover", (*bench).switchover},
		{"loss", func(b *bench, w io.Writer) error { return b.loss(w, "As fast as the processors go") }}}},
	{line, []part{{"acks", (*bench).acks},
		{"loss", func(b *bench, w io.Writer) error {
			return b.loss(w, "A line of 1 Gb/s, packets late by 2.2 ms", "tx delay 2200us")
		}}}},
}

// part is a part of the report.
type part struct {
	name string
	run  func(*bench, io.Writer) error
}

// write measures the selected parts and writes the report.
func write(run *measure.Run, w io.Writer) error {
	if run.Only != "" && !slices.Contains(names, run.Only) {
		return fmt.Errorf("no part %q; there are %s", run.Only, strings.Join(names, ", "))
	}
	fmt.Fprintf(w, `# Flor on real frames

Made by `+"`make bench-flor`"+` on %d cores: calls of `+"`roceperf flor`"+`, answered with 8 bytes, between two network namespaces over
TAPs, medians of %d measurements of %d s in turns. Four processes share the processors: two daemons, client and server.
"CPU" is the client's program for each call, without the daemon. For bandwidth and losses Flor has a fixed window of 4 MB (7.3).
`, runtime.NumCPU(), run.Rounds, run.Seconds)
	for _, s := range sections {
		err := run.Lab(netlab.LabOptions{Extra: s.extra}, func(l *netlab.Lab) error {
			b := &bench{run, l}
			// Address resolution completes before the measurement.
			if _, err := b.measure(&subject{test: "lat", both: "-c plain"}, 1); err != nil {
				return err
			}
			for _, p := range s.parts {
				if run.Only != "" && run.Only != p.name {
					continue
				}
				if err := p.run(b, w); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goal compares a share with its minimum.
func goal(share, least float64) string {
	if share >= least {
		return fmt.Sprintf("%.2f, goal %.2f: yes", share, least)
	}
	return fmt.Sprintf("%.2f, goal %.2f: **no**", share, least)
}

func (b *bench) bandwidth(w io.Writer) error {
	s := []subject{{name: "WRITE of roceperf", test: writes, client: "-s 1m"}}
	for _, c := range carriers {
		s = append(s, subject{name: "calls, " + c.name, test: "bw", both: c.option + fixed, client: "-s 1m -t 8"})
	}
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Bandwidth: 1 MB, 8 at a time\n\n| | Gb/s | of WRITE | CPU, us |\n|---|--:|--:|--:|\n")
	for i := range s {
		share := fmt.Sprintf("%.2f", r[i].Gbps/r[0].Gbps)
		if i == 1 || i == 2 {
			share = goal(r[i].Gbps/r[0].Gbps, 0.9)
		}
		fmt.Fprintf(w, "| %s | %.2f | %s | %.0f |\n", s[i].name, r[i].Gbps, share, r[i].CPUMicros)
	}
	return nil
}

func (b *bench) rate(w io.Writer) error {
	const many = "-s 128 -q 8 -t 16"
	s := []subject{
		{name: "Flor, UC, an acknowledgement for each WQE", test: "rate", both: "-c uc --ack-wqes 1", client: many},
		{name: "Flor, UC, 32 WQEs or 120 us", test: "rate", both: "-c uc", client: many},
		{name: "Flor, RC", test: "rate", both: "-c rc", client: many},
		{name: "plain RC", test: "rate", both: "-c plain", client: many},
	}
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Rate: 128 bytes, 8 connections, 16 calls each\n\n| | calls/s | | acknowledgements for a call | CPU, us |\n|---|--:|--:|--:|--:|\n")
	for i := range s {
		share := fmt.Sprintf("%.2f", r[i].PerSecond/r[0].PerSecond)
		if i == 1 {
			share = goal(r[i].PerSecond/r[0].PerSecond, 1.3)
		}
		fmt.Fprintf(w, "| %s | %.0f | %s | %.2f | %.1f |\n", s[i].name, r[i].PerSecond, share,
			float64(r[i].Counters.AcksReceived)/max(r[i].PerSecond*float64(b.Seconds), 1), r[i].CPUMicros)
	}
	return nil
}

func (b *bench) latency(w io.Writer) error {
	var s []subject
	for _, c := range carriers {
		s = append(s, subject{name: c.name, test: "lat", both: c.option})
	}
	for _, c := range carriers {
		s = append(s, subject{name: c.name + ", incast: 64 KB, 64 connections", test: "incast", both: c.option})
	}
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Latency: 128 bytes, one at a time; incast\n\n| | median, us | 99 %, us | Gb/s |\n|---|--:|--:|--:|\n")
	for i := range s {
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.2f |\n", s[i].name, r[i].Latency.P50, r[i].Latency.P99, r[i].Gbps)
	}
	return nil
}

// acks compares acknowledgements on a separate queue pair with some behind data (4.1, figure 16).
func (b *bench) acks(w io.Writer) error {
	const both = "-c uc --echo"
	s := []subject{
		{name: "a queue pair and a completion queue of their own", test: "bw", both: both, client: echoes},
		{name: "behind data, polled with them", test: "bw", both: both + " --shared-acks", client: echoes},
	}
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, `
## Round trips as measured, by where acknowledgements go

Calls of 1 MB that are answered with as much, 8 at a time, on a line of 1 Gb/s without delay: data wait at both ends all the time. What
congestion control is told of (4.1, figure 16; the paper: ten times as accurate at 99 and 99.9 %); medians of each quantile.

| acknowledgements | median, us | 99 %, us | 99.9 %, us | Gb/s |
|---|--:|--:|--:|--:|
`)
	for i := range s {
		q := r[i].RTT
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %.2f |\n", s[i].name, q.P50, q.P99, q.P999, r[i].Gbps)
	}
	own, shared := r[0].RTT, r[1].RTT
	fmt.Fprintf(w, "| shared over own | %.2f | %.2f | %.2f | %.2f |\n", shared.P50/own.P50, shared.P99/own.P99, shared.P999/own.P999, r[1].Gbps/r[0].Gbps)
	return nil
}

// echoes are the options of the calls in acks.
const echoes = "-s 1m -q 1 -t 8"

// switchover breaks RC queue pairs.
func (b *bench) switchover(w io.Writer) error {
	fmt.Fprint(w, `
## From the completion in error to the first message by the backup queue pair

All packets to the queue pair in use are dropped until its NIC gives up (RC, retry_cnt 2). Goal: 1 ms.

| us | reached | queue pairs connected anew |
|--:|---|--:|
`)
	for range b.Rounds {
		r, err := b.failover()
		if err != nil {
			return err
		}
		reached := "yes"
		switch {
		case r.Counters.Switches == 0:
			reached = "**no queue pair has failed**"
		case r.Counters.Failover > 1e6:
			reached = "**no**"
		}
		fmt.Fprintf(w, "| %.0f | %s | %d |\n", float64(r.Counters.Failover)/1e3, reached, r.Counters.Reconnects)
	}
	return nil
}

// loss measures the effect of losses, next to a run without losses.
func (b *bench) loss(w io.Writer, title string, rules ...string) error {
	conditions := []struct{ name, rule string }{{"no loss", idle}, {"1/16384", lossy(16384)}, {"1/4096", lossy(4096)}, {"1/1024", lossy(1024)}, {"1/256", lossy(256)}}
	var s []subject
	for _, c := range carriers {
		s = append(s, subject{name: c.name, test: "bw", both: c.option + fixed, client: "-s 1m -t 8"})
	}
	results := make([][]sample, len(conditions))
	for i, c := range conditions {
		if err := b.SetFaults(context.Background(), 0, append([]string{c.rule}, rules...)...); err != nil {
			return err
		}
		var err error
		if results[i], err = b.medians(s); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n## Loss: 1 MB, 8 at a time. %s\n\nShares are of the carrier's own goodput without loss.\n\n| |", title)
	for _, c := range conditions {
		fmt.Fprintf(w, " %s |", c.name)
	}
	fmt.Fprint(w, "\n|---|--:|--:|--:|--:|--:|\n")
	for k := range s {
		fmt.Fprintf(w, "| %s | %.2f Gb/s |", s[k].name, results[0][k].Gbps)
		for i := 1; i < len(conditions); i++ {
			share := results[i][k].Gbps / results[0][k].Gbps
			if i == 2 && k == 0 {
				fmt.Fprintf(w, " %s |", goal(share, 0.95))
			} else {
				fmt.Fprintf(w, " %.2f |", share)
			}
		}
		fmt.Fprintln(w)
	}
	return b.SetFaults(context.Background(), 0)
}
