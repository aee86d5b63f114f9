// Package measure is the runner of the benchmarks: their flags, labs, rounds, medians and pages.
package measure

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"roced.io/roced/internal/lab/netlab"
)

// Run has the settings of a benchmark. All benchmarks have the same flags.
type Run struct {
	Bin     string // folder of the programs
	Only    string // selects a part
	Seconds int    // length of each measurement
	Rounds  int    // measurements of each kind; the median counts
}

// Main reads the flags, whose defaults are in r, and prints the page that write produces. Parts describes the values of
// -only; an empty one means a benchmark without rounds.
func Main(name, parts string, r Run, write func(*Run, io.Writer) error) {
	flag.StringVar(&r.Bin, "bin", "bin", "folder of the programs")
	if parts != "" {
		flag.StringVar(&r.Only, "only", "", parts)
		flag.IntVar(&r.Seconds, "seconds", r.Seconds, "length of each measurement")
		flag.IntVar(&r.Rounds, "rounds", r.Rounds, "measurements of each kind; the median counts")
	}
	out := flag.String("out", "", "report to write, in Markdown; none: print it only")
	flag.Parse()
	var page bytes.Buffer
	err := write(&r, io.MultiWriter(&page, os.Stdout))
	if err == nil && *out != "" {
		err = os.WriteFile(*out, page.Bytes(), 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Lab runs f on two NICs. It keeps their files in a folder of their own.
func (r *Run) Lab(o netlab.LabOptions, f func(*netlab.Lab) error) (err error) {
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

// Perf runs roceperf between the NICs of a lab for some seconds.
func Perf(l *netlab.Lab, seconds float64, args ...string) (netlab.PerfResult, error) {
	d := time.Duration(seconds * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), d+time.Minute)
	defer cancel()
	return l.Perf(ctx, filepath.Join(l.Dir, "oob-"+l.Host[0].Device), append(slices.Clone(args), "-D", d.String())...)
}

// Counters returns the counters of the NIC of host i.
func Counters(l *netlab.Lab, i int) (map[string]uint64, error) {
	text, err := l.Ctl(context.Background(), i, "stat", l.Host[i].Device, "--json")
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
