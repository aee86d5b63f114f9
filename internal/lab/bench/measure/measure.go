// Package measure is the library of the benchmarks: parts with their settings, labs, rounds, medians and reports.
package measure

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

	"roced.io/roced/internal/lab/netlab"
)

// Lab runs f on two NICs. It keeps their files in a folder of their own.
func (r *Run) Lab(o netlab.LabOptions, f func(*netlab.Lab) error) (err error) {
	if !o.Unix && !o.Loopback && netlab.Own() == netlab.Unprivileged {
		return errors.New("network namespaces and TAP devices need root: run bench as root")
	}
	o.Bin = cmp.Or(o.Bin, r.Bin)
	if o.Dir, err = os.MkdirTemp("", "roced-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(o.Dir)
	l, err := netlab.NewLab(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return f(l)
}

// Roceperf runs roceperf between the NICs of a lab for some seconds.
func (r *Run) Roceperf(l *netlab.Lab, seconds int, args ...string) (netlab.PerfResult, error) {
	d := time.Duration(seconds) * time.Second
	ctx, cancel := context.WithTimeout(r.Ctx, d+time.Minute)
	defer cancel()
	return l.Perf(ctx, filepath.Join(l.Dir, "oob-"+l.Host[0].Device), append(slices.Clone(args), "-D", d.String())...)
}

// Gbps, Millions and Mean return the throughput of payload, the messages in millions per second, and the mean latency in us.
func Gbps(r netlab.PerfResult) float64     { return r.Gbps }
func Millions(r netlab.PerfResult) float64 { return r.MessagesPerSecond / 1e6 }
func Mean(r netlab.PerfResult) float64     { return r.Latency.Mean }

// IdleRule is a fault rule that matches no frame. NICs with rules send single frames, and all compared runs must do so.
const IdleRule = "both drop qpn=0xfffffe"

// LossRule returns a fault rule that drops a share of the frames in both directions.
func LossRule(share float64) string { return fmt.Sprintf("both drop p=%.8f seed=7", share) }

// Counters returns the counters of the NIC of host i.
func (r *Run) Counters(l *netlab.Lab, i int) (map[string]uint64, error) {
	text, err := l.Ctl(r.Ctx, i, "stat", l.Host[i].Device, "--json")
	if err != nil {
		return nil, err
	}
	var stats []struct{ Counters map[string]uint64 }
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		return nil, fmt.Errorf("rocectl stat: %w", err)
	}
	if len(stats) != 1 {
		return nil, fmt.Errorf("rocectl stat: %d NICs, want 1", len(stats))
	}
	return stats[0].Counters, nil
}

// Alternate takes a sample of each case in each round, so that all cases meet the same noise. Each round reverses the order,
// because a sample may depend on the one before it.
func Alternate[T any](rounds, cases int, sample func(i int) (T, error)) ([][]T, error) {
	all := make([][]T, cases)
	for round := range rounds {
		for i := range all {
			if round%2 != 0 {
				i = cases - 1 - i
			}
			v, err := sample(i)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], v)
		}
	}
	return all, nil
}

// Repeat takes the samples of one case.
func Repeat[T any](rounds int, sample func() (T, error)) ([]T, error) {
	all, err := Alternate(rounds, 1, func(int) (T, error) { return sample() })
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Middle returns the sample with the median of a value.
func Middle[T any](samples []T, value func(T) float64) T {
	samples = slices.SortedFunc(slices.Values(samples), func(a, b T) int { return cmp.Compare(value(a), value(b)) })
	return samples[len(samples)/2]
}

// Median returns the median.
func Median(values []float64) float64 { return Middle(values, func(v float64) float64 { return v }) }
