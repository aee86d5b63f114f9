package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"

	"roced/tools/testbed"
)

// idle is a rule that no frame meets: NICs with rules send single frames, and what is compared must all do so.
const idle = "both drop qpn=0xfffffe"

// lossy are frames lost in both directions.
func lossy(one int) string { return fmt.Sprintf("both drop p=%.8f seed=7", 1/float64(one)) }

// carriers are what calls go by.
var carriers = []struct{ name, option string }{{"Flor, UC", "-c uc"}, {"Flor, RC", "-c rc"}, {"plain RC", "-c plain"}}

// fixed is a window that does not shrink, as in 7.3: what losses and processors do is measured, not congestion control.
const fixed = " --window 4194304"

// line is a link of 1 Gb/s, on which the transport decides and not the processors.
const line = "    congestion: {algorithm: static, rate_bps: 1e9}\n"

func (b *bench) run(out string) error {
	w := &bytes.Buffer{}
	fmt.Fprintf(w, `# Flor on real frames

Made by `+"`make bench-flor`"+` on %d cores: calls of `+"`roceperf flor`"+`, answered with 8 bytes, between two network namespaces over
TAPs, medians of %d measurements of %d s in turns. Four processes share the processors: two daemons, client and server.
"CPU" is the client's program for each call, without the daemon. For bandwidth and losses Flor has a fixed window of 4 MB (7.3).
`, runtime.NumCPU(), b.rounds, b.seconds)
	if err := b.lab("", func(l *testbed.Lab) error {
		for _, f := range []func(*bytes.Buffer, *testbed.Lab) error{b.bandwidth, b.rate, b.latency, b.switchover} {
			if err := f(w, l); err != nil {
				return err
			}
		}
		return b.loss(w, l, "As fast as the processors go", nil)
	}); err != nil {
		return err
	}
	if err := b.lab(line, func(l *testbed.Lab) error {
		return b.loss(w, l, "A line of 1 Gb/s, packets late by 2.2 ms", []string{"tx delay 2200us"})
	}); err != nil {
		return err
	}
	if out == "" {
		_, err := os.Stdout.Write(w.Bytes())
		return err
	}
	return os.WriteFile(out, w.Bytes(), 0o644)
}

// goal says whether a share is as large as it should be.
func goal(share, least float64) string {
	if share >= least {
		return fmt.Sprintf("%.2f, goal %.2f: yes", share, least)
	}
	return fmt.Sprintf("%.2f, goal %.2f: **no**", share, least)
}

func (b *bench) bandwidth(w *bytes.Buffer, l *testbed.Lab) error {
	s := []subject{{name: "WRITE of roceperf", test: writes, client: "-s 1m"}}
	for _, c := range carriers {
		s = append(s, subject{name: "calls, " + c.name, test: "bw", both: c.option + fixed, client: "-s 1m -t 8"})
	}
	r, err := b.medians(l, s)
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

func (b *bench) rate(w *bytes.Buffer, l *testbed.Lab) error {
	const many = "-s 128 -q 8 -t 16"
	s := []subject{
		{name: "Flor, UC, an acknowledgement for each WQE", test: "rate", both: "-c uc --ack-wqes 1", client: many},
		{name: "Flor, UC, 32 WQEs or 120 us", test: "rate", both: "-c uc", client: many},
		{name: "Flor, RC", test: "rate", both: "-c rc", client: many},
		{name: "plain RC", test: "rate", both: "-c plain", client: many},
	}
	r, err := b.medians(l, s)
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
			float64(r[i].Counters.AcksReceived)/max(r[i].PerSecond*float64(b.seconds), 1), r[i].CPUMicros)
	}
	return nil
}

func (b *bench) latency(w *bytes.Buffer, l *testbed.Lab) error {
	var s []subject
	for _, c := range carriers {
		s = append(s, subject{name: c.name, test: "lat", both: c.option})
	}
	for _, c := range carriers {
		s = append(s, subject{name: c.name + ", incast: 64 KB, 64 connections", test: "incast", both: c.option})
	}
	r, err := b.medians(l, s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Latency: 128 bytes, one at a time; incast\n\n| | median, us | 99 %, us | Gb/s |\n|---|--:|--:|--:|\n")
	for i := range s {
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.2f |\n", s[i].name, r[i].Latency.P50, r[i].Latency.P99, r[i].Gbps)
	}
	return nil
}

// switchover breaks queue pairs of RC.
func (b *bench) switchover(w *bytes.Buffer, l *testbed.Lab) error {
	fmt.Fprint(w, `
## From the completion in error to the first message by the backup queue pair

All packets to the queue pair in use are dropped until its NIC gives up (RC, retry_cnt 2). Goal: 1 ms.

| us | reached | queue pairs connected anew |
|--:|---|--:|
`)
	for range b.rounds {
		r, err := b.failover(l)
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

// loss measures what losses do, beside the same without.
func (b *bench) loss(w *bytes.Buffer, l *testbed.Lab, title string, rules []string) error {
	conditions := []struct{ name, rule string }{{"no loss", idle}, {"1/16384", lossy(16384)}, {"1/4096", lossy(4096)}, {"1/1024", lossy(1024)}, {"1/256", lossy(256)}}
	var s []subject
	for _, c := range carriers {
		s = append(s, subject{name: c.name, test: "bw", both: c.option + fixed, client: "-s 1m -t 8"})
	}
	results := make([][]sample, len(conditions))
	for i, c := range conditions {
		if err := l.SetFaults(context.Background(), 0, append([]string{c.rule}, rules...)...); err != nil {
			return err
		}
		var err error
		if results[i], err = b.medians(l, s); err != nil {
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
	return l.SetFaults(context.Background(), 0)
}
