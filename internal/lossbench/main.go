// Command lossbench measures what losses and packets out of order do to each transport
// profile, on real frames between two network namespaces, and writes a report. The
// faults are the NIC's own, by seed. Shares of a profile's own goodput without faults are
// what means something: machines differ and are noisy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"roced/internal/testbed"
)

// subject is a profile with its parts.
type subject struct {
	name  string
	yaml  string // of the NIC's entry
	goal  bool   // keeps 90 % of its goodput at 1 % loss
	spray bool   // ... and under packet spraying
	worst bool   // falls below half at 1 % loss
}

// window fits into Eunomia's largest bitmap, 256 packets, and is several times what is in
// the network, so that a sender goes on while it waits for a timeout.
const window = "    max_unacked: 240\n"

var subjects = []subject{
	{name: "rc: go-back-N", yaml: "    profile: rc\n", worst: true},
	{name: "irn", yaml: "    profile: irn\n    transports: {irn: {reorder: {bdp_packets: 256}, recovery: {bdp_packets: 256, rto_low_us: 1000, rto_high_us: 2000}}}\n", goal: true},
	{name: "melo", yaml: "    profile: melo\n    transports: {melo: {recovery: {rto_us: 2000}}}\n", goal: true},
	{name: "mp-rdma", yaml: "    profile: mp-rdma\n", spray: true},
	{name: "eunomia over selective repeat", goal: true, spray: true, yaml: "    profile: eunomia\n    transports: {eunomia: {reorder: {hold_last_at_receiver: 1}, recovery: {hold_last_at_sender: 0, selective_repeat: 1, rto_us: 1000}}}\n"},
	{name: "the same, last packets held at the sender", yaml: "    profile: eunomia\n    transports: {eunomia: {recovery: {selective_repeat: 1, rto_us: 1000}}}\n"},
	{name: "eunomia over go-back-N", yaml: "    profile: eunomia\n    transports: {eunomia: {recovery: {rto_us: 1000}}}\n"},
}

// condition is a state of the network.
type condition struct {
	name  string
	rules []string
}

// idle is a rule that no frame meets: NICs with rules send single frames, and what is
// compared must all do so.
const idle = "both drop qpn=0xfffffe"

// Conditions that are compared with each other, because to delay packets costs time too.
const (
	onePath   = "1 path, 30 us"
	fourPaths = "4 paths"
)

func conditions() []condition {
	all := []condition{{"no loss", []string{idle}}}
	for _, l := range []struct {
		name string
		p    float64
	}{{"1/16384", 1. / 16384}, {"1/4096", 1. / 4096}, {"1/1024", 1. / 1024}, {"1/256", 1. / 256}, {"1 %", 0.01}, {"5 %", 0.05}} {
		all = append(all, condition{l.name, []string{fmt.Sprintf("both drop p=%.8f seed=7", l.p)}})
	}
	// Half of the packets are late by 20 us and half of all by 40 us: four paths.
	return append(all, condition{onePath, []string{"tx delay 30us"}},
		condition{fourPaths, []string{"tx delay 20us p=0.5 seed=3", "tx delay 40us p=0.5 seed=4"}})
}

func main() {
	bin := flag.String("bin", "bin", "folder of the programs")
	out := flag.String("out", "", "report to write, in Markdown; none: print it only")
	seconds := flag.Int("seconds", 2, "length of each measurement")
	rounds := flag.Int("rounds", 3, "measurements of each kind; the median counts")
	flag.Parse()
	if err := run(*bin, *out, *seconds, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "lossbench:", err)
		os.Exit(1)
	}
}

func run(bin, out string, seconds, rounds int) error {
	if os.Geteuid() != 0 && testbed.Own() == testbed.Unprivileged {
		return errors.New("needs root: this user may not make network namespaces and TAP devices")
	}
	var results [][]float64
	for _, s := range subjects {
		r, err := s.measure(bin, seconds, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		results = append(results, r)
	}
	states, err := measureStates()
	if err != nil {
		return err
	}
	report(os.Stdout, results, states, seconds, rounds)
	if out == "" {
		return nil
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	report(f, results, states, seconds, rounds)
	return f.Close()
}

// measure returns the goodput of a profile in each condition, in Gb/s.
func (s *subject) measure(bin string, seconds, rounds int) (medians []float64, err error) {
	dir, err := os.MkdirTemp("", "roced-loss")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := testbed.NewLab(testbed.LabOptions{Bin: bin, Dir: dir, Extra: s.yaml + window})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	all := conditions()
	if _, err := goodput(l, bin, all[0], 1); err != nil { // the NICs get to know each other
		return nil, err
	}
	samples := make([][]float64, len(all))
	for range rounds { // in turns, so that all meet the same noise
		for i, c := range all {
			v, err := goodput(l, bin, c, seconds)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			samples[i] = append(samples[i], v)
		}
	}
	for i, c := range all {
		slices.Sort(samples[i])
		medians = append(medians, samples[i][len(samples[i])/2])
		fmt.Fprintf(os.Stderr, "  %-42s %-14s %7.2f Gb/s\n", s.name, c.name, medians[i])
	}
	return medians, nil
}

// goodput measures WRITEs of 64 KiB under a condition.
func goodput(l *testbed.Lab, bin string, c condition, seconds int) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+60)*time.Second)
	defer cancel()
	rocectl := []string{filepath.Join(bin, "rocectl"), "--run-dir", l.Host[0].RunDir, "fault"}
	if _, err := l.Output(ctx, 0, append(slices.Clone(rocectl), "clear", l.Host[0].Device)); err != nil {
		return 0, err
	}
	for _, r := range c.rules {
		if _, err := l.Output(ctx, 0, append(slices.Clone(rocectl), "add", l.Host[0].Device, r)); err != nil {
			return 0, err
		}
	}
	oob := filepath.Join(l.Dir, "oob")
	os.Remove(oob)
	common := []string{filepath.Join(bin, "roceperf"), "write-bw", "-s", "64k", "-u", "14", "-D", fmt.Sprintf("%ds", seconds), "--oob", "unix:" + oob}
	server := append(slices.Clone(common), "--run-dir", l.Host[1].RunDir)
	client := append(slices.Clone(common), "--run-dir", l.Host[0].RunDir, "--json", "peer")
	text, err := l.Pair(ctx, server, client, func(ctx context.Context) error { return testbed.WaitFile(ctx, oob) })
	if err != nil {
		return 0, err
	}
	var r struct {
		Gbps float64 `json:"gbps"`
	}
	return r.Gbps, json.Unmarshal([]byte(text), &r)
}
