// Command compare measures two builds of the programs side by side. Both labs run at once, and the measurements
// alternate between them, so that both builds meet the same noise. It prints ratios for each transport profile: of
// latency, and of throughput for messages of one and of 64 packets, with and without loss. Another mode measures the
// cost of the live page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// mtu is the path MTU of roceperf's queue pairs in the lab.
const mtu = 4096

// kind is a kind of measurement.
type kind struct {
	name  string
	args  []string // of roceperf
	value func(netlab.PerfResult) float64
	worse bool // a larger value is worse
}

func gbps(r netlab.PerfResult) float64     { return r.Gbps }
func millions(r netlab.PerfResult) float64 { return r.MessagesPerSecond / 1e6 }
func mean(r netlab.PerfResult) float64     { return r.Latency.Mean }

var kinds = []kind{
	{"64 packets, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(64 * mtu)}, gbps, false},
	{"1 packet, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(mtu)}, gbps, false},
	{"64 B, M/s", []string{"write-bw", "-u", "14", "-s", "64"}, millions, false},
	{"8 B, us", []string{"write-lat", "-u", "14", "-s", "8"}, mean, true},
	{"8 B SEND, us", []string{"send-lat", "-u", "14", "-s", "8"}, mean, true},
}

var profiles = []string{"rc", "irn", "melo", "mp-rdma", "eunomia", "mrc"}

// loss is the sender's fault rules.
type loss struct {
	name  string
	rules []string
}

// losses are the losses of a comparison. Latency is measured without.
var losses = []loss{{"0 %", nil}, {"1 %", []string{"tx drop p=0.01 seed=7"}}}

func main() {
	before := flag.String("before", "", "folder of the programs of the earlier build (required)")
	after := flag.String("bin", "bin", "folder of the programs of the later one")
	c := comparison{}
	flag.Float64Var(&c.seconds, "seconds", 1, "length of each measurement")
	flag.IntVar(&c.Rounds, "rounds", 5, "measurements of each kind and build; ratios are of the medians")
	flag.StringVar(&c.Only, "only", "", "measure only what contains this in its line of the report")
	watched := flag.Bool("watched", false, "instead of two builds, measure -bin without and with somebody who looks at its live page")
	flag.Parse()
	c.bins = [2]string{*before, *after}
	run := c.run
	if *watched {
		run = c.watched
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// comparison holds the two builds and the settings.
type comparison struct {
	measure.Run
	bins    [2]string
	seconds float64
}

func (c *comparison) run() error {
	if c.bins[0] == "" {
		return errors.New("-before: the folder of the earlier build is missing")
	}
	fmt.Println("| profile | measured | loss | before | after | after/before | range of the rounds |\n|---|---|---|--:|--:|--:|---|")
	var errs []error // such as an earlier build that lacks a profile
	for _, p := range profiles {
		if err := c.profile(p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

// line is a line of the report.
type line struct {
	name string // its first columns
	kind *kind
	loss loss
}

// lines returns the lines of a profile that Only permits.
func (c *comparison) lines(profile string) (out []line) {
	for i := range kinds {
		for _, loss := range losses {
			l := line{fmt.Sprintf("| %s | %s | %s |", profile, kinds[i].name, loss.name), &kinds[i], loss}
			if (loss.rules == nil || !kinds[i].worse) && strings.Contains(l.name, c.Only) {
				out = append(out, l)
			}
		}
	}
	return out
}

// profile measures a transport profile in two labs.
func (c *comparison) profile(name string) error {
	lines := c.lines(name)
	if len(lines) == 0 {
		return nil
	}
	o := netlab.LabOptions{Bin: c.bins[0], Extra: "    profile: " + name + "\n"}
	return c.Lab(o, func(before *netlab.Lab) error {
		o.Bin = c.bins[1]
		return c.Lab(o, func(after *netlab.Lab) error { return c.builds(lines, [2]*netlab.Lab{before, after}) })
	})
}

// builds compares the builds in two labs.
func (c *comparison) builds(lines []line, labs [2]*netlab.Lab) error {
	for _, l := range lines {
		text, err := c.ratio(labs, l.kind, l.loss.rules)
		if err != nil {
			return fmt.Errorf("%s, loss %s: %w", l.kind.name, l.loss.name, err)
		}
		fmt.Println(l.name, text)
	}
	return nil
}

// ratio measures both builds.
func (c *comparison) ratio(labs [2]*netlab.Lab, m *kind, rules []string) (string, error) {
	p, err := c.alternate(m, func(i int) (*netlab.Lab, func(), error) {
		return labs[i], nil, labs[i].SetFaults(context.Background(), 0, rules...)
	})
	if err != nil {
		return "", err
	}
	was, is := measure.Median(p.values[0]), measure.Median(p.values[1])
	return fmt.Sprintf("%.3g | %.3g | %.2f | %.2f-%.2f |", was, is, is/was, slices.Min(p.ratios), slices.Max(p.ratios)), nil
}

// pair has the values of both sides of a comparison, and their ratios in each round.
type pair struct {
	values [][]float64
	ratios []float64
}

// alternate measures both sides of a comparison in turns. prepare prepares side i; it may return a function that runs
// after the measurement.
func (c *comparison) alternate(m *kind, prepare func(i int) (*netlab.Lab, func(), error)) (p pair, err error) {
	p.values, err = measure.Alternate(c.Rounds, 2, func(i int) (float64, error) {
		l, stop, err := prepare(i)
		if err != nil {
			return 0, err
		}
		if stop != nil {
			defer stop()
		}
		r, err := measure.Perf(l, c.seconds, m.args...)
		return m.value(r), err
	})
	if err == nil {
		for i, v := range p.values[0] {
			p.ratios = append(p.ratios, p.values[1][i]/v)
		}
	}
	return p, err
}
