package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"roced.io/roced/internal/netlab"
)

// sample is one measurement.
type sample struct {
	Gbps  float64 // payload
	again float64 // retransmissions as a share of all packets
}

// measure returns the medians of a profile on a network.
func (b *bench) measure(n *network, s *subject) (medians result, err error) {
	dir, err := os.MkdirTemp("", "roced-loss")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	l, err := netlab.NewLab(netlab.LabOptions{Bin: b.bin, Dir: dir, Extra: n.yaml(s) + window})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if _, err := b.sample(l, n.conditions[0].rules, 1); err != nil { // address resolution completes before the measurement
		return nil, err
	}
	samples := map[string][]sample{}
	for range b.rounds { // alternate, so that all conditions meet the same noise
		for _, c := range n.conditions {
			v, err := b.sample(l, c.rulesFor(s), b.seconds)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			samples[c.name] = append(samples[c.name], v)
		}
	}
	medians = result{}
	for _, c := range n.conditions {
		all := samples[c.name]
		slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.Gbps, b.Gbps) })
		m := all[len(all)/2]
		medians[c.name] = m
		fmt.Fprintf(os.Stderr, "  %-28s %-42s %-8s %6.2f Gb/s, %4.1f %% sent again\n", n.name, s.name, c.name, m.Gbps, 100*m.again)
	}
	return medians, nil
}

// sample measures WRITEs of 64 KiB under fault rules.
func (b *bench) sample(l *netlab.Lab, rules []string, seconds int) (s sample, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+60)*time.Second)
	defer cancel()
	if err := l.SetFaults(ctx, 0, rules...); err != nil {
		return s, err
	}
	before, err := b.counters(ctx, l)
	if err != nil {
		return s, err
	}
	r, err := l.Perf(ctx, filepath.Join(l.Dir, "oob"), "write-bw", "-s", "64k", "-u", "14", "-D", fmt.Sprintf("%ds", seconds))
	if err != nil {
		return s, err
	}
	s.Gbps = r.Gbps
	after, err := b.counters(ctx, l)
	if err != nil {
		return s, err
	}
	grown := func(name string) float64 { return float64(after[name] - before[name]) }
	s.again = grown("retransmitted_packets") / max(grown("sent_pkts"), 1)
	return s, nil
}

// counters returns the sender's counters.
func (b *bench) counters(ctx context.Context, l *netlab.Lab) (map[string]uint64, error) {
	text, err := l.Ctl(ctx, 0, "stat", l.Host[0].Device, "--json")
	if err != nil {
		return nil, err
	}
	var stats []struct{ Counters map[string]uint64 }
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		return nil, fmt.Errorf("rocectl stat: %w", err)
	}
	if len(stats) != 1 {
		return nil, fmt.Errorf("rocectl stat tells of %d NICs", len(stats))
	}
	return stats[0].Counters, nil
}
