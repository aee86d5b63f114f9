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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/netlab"
)

// mtu is the path MTU of roceperf's queue pairs in the lab.
const mtu = 4096

// measure is a kind of measurement.
type measure struct {
	name  string
	args  []string // of roceperf
	value func(netlab.PerfResult) float64
	worse bool // a larger value is worse
}

func gbps(r netlab.PerfResult) float64     { return r.Gbps }
func millions(r netlab.PerfResult) float64 { return r.MessagesPerSecond / 1e6 }
func mean(r netlab.PerfResult) float64     { return r.Latency.Mean }

var measures = []measure{
	{"64 packets, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(64 * mtu)}, gbps, false},
	{"1 packet, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(mtu)}, gbps, false},
	{"64 B, M/s", []string{"write-bw", "-u", "14", "-s", "64"}, millions, false},
	{"8 B, us", []string{"write-lat", "-u", "14", "-s", "8"}, mean, true},
	{"8 B SEND, us", []string{"send-lat", "-u", "14", "-s", "8"}, mean, true},
}

var profiles = []string{"rc", "irn", "melo", "mp-rdma", "eunomia"}

// losses are the sender's fault rules. Latency is measured without rules.
var losses = []struct {
	name  string
	rules []string
}{{"0 %", nil}, {"1 %", []string{"tx drop p=0.01 seed=7"}}}

func main() {
	before := flag.String("before", "", "folder of the programs of the earlier build (required)")
	after := flag.String("bin", "bin", "folder of the programs of the later one")
	seconds := flag.Float64("seconds", 1, "length of each measurement")
	rounds := flag.Int("rounds", 5, "measurements of each kind and build; ratios are of the medians")
	only := flag.String("only", "", "measure only what contains this in its line of the report")
	watched := flag.Bool("watched", false, "instead of two builds, measure -bin without and with somebody who looks at its live page")
	flag.Parse()
	c := comparison{bins: [2]string{*before, *after}, length: time.Duration(*seconds * float64(time.Second)), rounds: *rounds, only: *only}
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
	bins   [2]string
	length time.Duration
	rounds int
	only   string
}

func (c *comparison) run() error {
	if c.bins[0] == "" {
		return errors.New("-before: the folder of the earlier build is missing")
	}
	fmt.Println("| profile | measured | loss | before | after | after/before | range of the rounds |\n|---|---|---|--:|--:|--:|---|")
	for _, p := range profiles {
		if err := c.profile(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// profile measures a transport profile in two labs.
func (c *comparison) profile(name string) (err error) {
	var labs [2]*netlab.Lab
	for i, bin := range c.bins {
		dir, err := os.MkdirTemp("", "roced-cmp")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		l, err := netlab.NewLab(netlab.LabOptions{Bin: bin, Dir: dir, Extra: "    profile: " + name + "\n"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		labs[i] = l
	}
	for _, m := range measures {
		for _, loss := range losses {
			line := fmt.Sprintf("| %s | %s | %s |", name, m.name, loss.name)
			if m.worse && loss.rules != nil || !strings.Contains(line, c.only) {
				continue
			}
			text, err := c.ratio(labs, &m, loss.rules)
			if err != nil {
				return fmt.Errorf("%s, loss %s: %w", m.name, loss.name, err)
			}
			fmt.Println(line, text)
		}
	}
	return nil
}

// ratio measures both builds in alternation.
func (c *comparison) ratio(labs [2]*netlab.Lab, m *measure, rules []string) (string, error) {
	var values [2][]float64
	var ratios []float64
	for range c.rounds {
		for i, l := range labs {
			v, err := c.sample(l, m, rules)
			if err != nil {
				return "", err
			}
			values[i] = append(values[i], v)
		}
		ratios = append(ratios, values[1][len(values[1])-1]/values[0][len(values[0])-1])
	}
	was, is := median(values[0]), median(values[1])
	return fmt.Sprintf("%.3g | %.3g | %.2f | %.2f-%.2f |", was, is, is/was, slices.Min(ratios), slices.Max(ratios)), nil
}

func (c *comparison) sample(l *netlab.Lab, m *measure, rules []string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.length+time.Minute)
	defer cancel()
	if err := l.SetFaults(ctx, 0, rules...); err != nil {
		return 0, err
	}
	r, err := l.Perf(ctx, filepath.Join(l.Dir, "oob"), append(slices.Clone(m.args), "-D", c.length.String())...)
	return m.value(r), err
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
