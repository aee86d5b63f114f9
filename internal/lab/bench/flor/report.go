// Package flor measures calls by Flor on real frames between two network namespaces, beside WRITEs and SENDs of roceperf
// by RC in the same run.
package flor

import (
	"fmt"
	"io"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// carriers are the queue pairs of calls.
var carriers = []struct{ name, option string }{{"Flor, UC", "-c uc"}, {"Flor, RC", "-c rc"}}

// callsAndWrites returns calls of 1 MB by each carrier, and WRITEs of as much by RC.
func callsAndWrites() []subject {
	s := []subject{{name: "WRITE by RC", test: "write-bw", client: "-s 1m -t 8", plain: true}}
	for _, c := range carriers {
		s = append(s, subject{name: "calls, " + c.name, test: "bw", both: c.option + fixed, client: "-s 1m -t 8"})
	}
	return s
}

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

// Part returns the part of the benchmark.
func Part() measure.Part {
	return measure.Part{Name: "flor", Short: "Compare Flor's calls with WRITEs and SENDs of RC", Title: "Flor on real frames",
		Lines: []string{"bandwidth", "rate", "latency", "acks", "switchover", "loss"}, Run: measure.Run{Seconds: 2, Rounds: 3}, Measure: write}
}

const about = `Calls of ` + "`roceperf flor`" + `, answered with 8 bytes, between two network namespaces over TAPs (` + "`make bench-flor`" + `). Beside them
are WRITEs and SENDs of ` + "`roceperf`" + ` by RC, without Flor. Four processes share the processors: two daemons, client and server.
"CPU" is the client's program for each call, without the daemon. For bandwidth and losses Flor has a fixed window of 4 MB (7.3).
`

// write measures the selected parts and writes the report.
func write(run *measure.Run, w io.Writer) error {
	fmt.Fprint(w, about)
	for _, s := range sections {
		err := run.Lab(netlab.LabOptions{Extra: s.extra}, func(l *netlab.Lab) error {
			b := &bench{run, l}
			// Address resolution completes before the measurement.
			if _, err := b.measure(&subject{test: "write-lat", plain: true}, 1); err != nil {
				return err
			}
			for _, p := range s.parts {
				if !run.Selects(p.name) {
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

// cpu formats the CPU time of a call, which roceperf measures for calls only.
func (s *subject) cpu(r *sample) string {
	if s.plain {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.CPUMicros)
}

func (b *bench) bandwidth(w io.Writer) error {
	s := callsAndWrites()
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Bandwidth: 1 MB, 8 at a time\n\n")
	measure.Table(w, "", ">Gb/s", ">of WRITE", "goal", ">CPU, us")
	for i := range s {
		share, goal := r[i].Gbps/r[0].Gbps, 0.9
		if s[i].plain {
			goal = 0
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %s |\n", s[i].name, r[i].Gbps, share, measure.Goal(share, goal, false), s[i].cpu(&r[i]))
	}
	return nil
}

func (b *bench) rate(w io.Writer) error {
	const many = "-s 128 -q 8 -t 16"
	s := []subject{
		{name: "Flor, UC, an acknowledgement for each WQE", test: "rate", both: "-c uc --ack-wqes 1", client: many},
		{name: "Flor, UC, 32 WQEs or 120 us", test: "rate", both: "-c uc", client: many},
		{name: "Flor, RC", test: "rate", both: "-c rc", client: many},
		{name: "SEND by RC, without answers", test: "send-bw", client: many, plain: true},
	}
	r, err := b.medians(s)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n## Rate: 128 bytes, 8 connections, 16 calls each\n\n")
	measure.Table(w, "", ">calls/s", ">of the first", "goal", ">acknowledgements for a call", ">CPU, us")
	for i := range s {
		share, goal := r[i].PerSecond/r[0].PerSecond, 0.0
		if i == 1 {
			goal = 1.3
		}
		fmt.Fprintf(w, "| %s | %.0f | %.2f | %s | %.2f | %s |\n", s[i].name, r[i].PerSecond, share, measure.Goal(share, goal, false),
			float64(r[i].Counters.AcksReceived)/max(r[i].PerSecond*float64(b.Seconds), 1), s[i].cpu(&r[i]))
	}
	return nil
}

func (b *bench) latency(w io.Writer) error {
	s := []subject{{name: "SEND by RC and one back", test: "send-lat", client: "-s 128", plain: true}}
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
	fmt.Fprint(w, "\n## Latency: 128 bytes, one at a time; incast\n\n")
	measure.Table(w, "", ">median, us", ">99 %, us", ">Gb/s")
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
congestion control measures (4.1, figure 16; the paper: ten times as accurate at 99 and 99.9 %); medians of each quantile.

`)
	measure.Table(w, "acknowledgements", ">median, us", ">99 %, us", ">99.9 %, us", ">Gb/s")
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

`)
	measure.Table(w, ">us", "goal", ">queue pairs connected anew")
	for range b.Rounds {
		r, err := b.failover()
		if err != nil {
			return err
		}
		us := float64(r.Counters.Failover) / 1e3
		reached := measure.Goal(us, 1000, true)
		if r.Counters.Switches == 0 {
			reached = "**no queue pair has failed**"
		}
		fmt.Fprintf(w, "| %.0f | %s | %d |\n", us, reached, r.Counters.Reconnects)
	}
	return nil
}

// loss measures the effect of losses, next to a run without losses.
func (b *bench) loss(w io.Writer, title string, rules ...string) error {
	shares := []int{16384, 4096, 1024, 256}
	s := callsAndWrites()
	results := make([][]sample, 1+len(shares))
	columns := []string{"", ">no loss"}
	for i := range results {
		rule := measure.IdleRule
		if i > 0 {
			rule = measure.LossRule(1 / float64(shares[i-1]))
			columns = append(columns, fmt.Sprintf(">1/%d", shares[i-1]))
		}
		if err := b.SetFaults(b.Ctx, 0, append([]string{rule}, rules...)...); err != nil {
			return err
		}
		var err error
		if results[i], err = b.medians(s); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n## Loss: 1 MB, 8 at a time. %s\n\nShares are of the row's own goodput without loss.\n\n", title)
	measure.Table(w, append(columns, "goal at 1/4096")...)
	for k := range s {
		fmt.Fprintf(w, "| %s | %.2f Gb/s |", s[k].name, results[0][k].Gbps)
		share := func(i int) float64 { return results[i][k].Gbps / results[0][k].Gbps }
		for i := 1; i < len(results); i++ {
			fmt.Fprintf(w, " %.2f |", share(i))
		}
		goal := 0.0
		if s[k].both == carriers[0].option+fixed {
			goal = 0.95
		}
		fmt.Fprintf(w, " %s |\n", measure.Goal(share(2), goal, false))
	}
	return b.SetFaults(b.Ctx, 0)
}
