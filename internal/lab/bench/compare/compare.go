// Package compare measures two builds of the programs side by side. Both labs run at once, and the measurements
// alternate between them, so that both builds meet the same noise. It prints ratios for each transport profile: of
// latency, and of throughput for messages of one and of 64 packets, with and without loss. Another part measures the
// cost of the live page.
package compare

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

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

var kinds = []kind{
	{"64 packets, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(64 * mtu)}, measure.Gbps, false},
	{"1 packet, Gb/s", []string{"write-bw", "-u", "14", "-s", fmt.Sprint(mtu)}, measure.Gbps, false},
	{"64 B, M/s", []string{"write-bw", "-u", "14", "-s", "64"}, measure.Millions, false},
	{"8 B, us", []string{"write-lat", "-u", "14", "-s", "8"}, measure.Mean, true},
	{"8 B SEND, us", []string{"send-lat", "-u", "14", "-s", "8"}, measure.Mean, true},
}

var profiles = []string{"rc", "irn", "melo", "mp-rdma", "eunomia", "mrc"}

// loss is the sender's fault rules.
type loss struct {
	name  string
	rules []string
}

// losses are the losses of a comparison. Latency is measured without.
var losses = []loss{{"0 %", nil}, {"1 %", []string{"tx drop p=0.01 seed=7"}}}

// comparison compares the earlier build and the one of Run.Bin.
type comparison struct {
	*measure.Run
	before string
}

// Builds returns the part that compares builds.
func Builds() measure.Part {
	before := ""
	p := measure.Part{Name: "compare", Short: "Compare this build with an earlier one", Title: "Two builds", Run: measure.Run{Seconds: 1, Rounds: 5},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&before, "before", "", "folder of the programs of the earlier build (required)")
		},
		Check: func() error {
			if before == "" {
				return errors.New("--before: the folder of the earlier build is missing")
			}
			return nil
		},
		Measure: func(r *measure.Run, w io.Writer) error { return (&comparison{r, before}).builds(w) }}
	for _, profile := range profiles {
		for _, l := range lines(profile) {
			p.Lines = append(p.Lines, l.name)
		}
	}
	return p
}

// builds compares the builds. An earlier build may lack a profile: the others are measured nevertheless.
func (c *comparison) builds(w io.Writer) error {
	measure.Table(w, "profile", "measured", "loss", ">before", ">after", ">after/before", "range of the rounds")
	var errs []error
	for _, p := range profiles {
		if err := c.profile(w, p); err != nil {
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

// lines returns the lines of a profile.
func lines(profile string) (out []line) {
	for i := range kinds {
		for _, loss := range losses {
			if loss.rules == nil || !kinds[i].worse {
				out = append(out, line{fmt.Sprintf("%s | %s | %s", profile, kinds[i].name, loss.name), &kinds[i], loss})
			}
		}
	}
	return out
}

// profile measures a transport profile in two labs.
func (c *comparison) profile(w io.Writer, name string) error {
	selected := slices.DeleteFunc(lines(name), func(l line) bool { return !c.Selects(l.name) })
	if len(selected) == 0 {
		return nil
	}
	o := netlab.LabOptions{Bin: c.before, Extra: "    profile: " + name + "\n"}
	return c.Lab(o, func(before *netlab.Lab) error {
		o.Bin = c.Bin
		return c.Lab(o, func(after *netlab.Lab) error {
			labs := [2]*netlab.Lab{before, after}
			for _, l := range selected {
				p, err := c.alternate(l.kind, func(i int) (*netlab.Lab, func(), error) {
					return labs[i], nil, labs[i].SetFaults(c.Ctx, 0, l.loss.rules...)
				})
				if err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
				p.write(w, l.name)
			}
			return nil
		})
	})
}

// pair has the values of both sides of a comparison, and their ratios in each round.
type pair struct {
	values [][]float64
	ratios []float64
}

// write writes a row: the medians, their ratio, and the range of the ratios.
func (p *pair) write(w io.Writer, name string) {
	before, after := measure.Median(p.values[0]), measure.Median(p.values[1])
	fmt.Fprintf(w, "| %s | %.3g | %.3g | %.3f | %.2f-%.2f |\n", name, before, after, after/before, slices.Min(p.ratios), slices.Max(p.ratios))
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
		r, err := c.Roceperf(l, c.Seconds, m.args...)
		return m.value(r), err
	})
	if err == nil {
		for i, v := range p.values[0] {
			p.ratios = append(p.ratios, p.values[1][i]/v)
		}
	}
	return p, err
}
