package result

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"roced.io/roced/internal/base/chart"
	"roced.io/roced/internal/sim/engine"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// WriteSVG draws the slowdown and the completion times of messages. If there are samples, it also draws queues,
// goodput and pauses over time. It creates the folder and returns the files.
func (r *Result) WriteSVG(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pictures := map[string]*chart.Chart{}
	if len(r.Flows) > 0 {
		pictures["slowdown.svg"], pictures["fct.svg"] = r.slowdownChart(), r.fctChart()
	}
	if len(r.Samples) > 0 {
		pictures["queues.svg"] = r.queuesChart()
		pictures["goodput.svg"] = r.goodputChart()
		if r.Pauses > 0 {
			pictures["pauses.svg"] = r.pausesChart()
		}
	}
	for _, name := range sortedKeys(pictures) {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pictures[name].SVG(), 0o644); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (r *Result) title() string { return fmt.Sprintf("%s, %s, seed %d", r.Name, r.Profile, r.Seed) }

// statistics are the bars of a distribution.
var statistics = []struct {
	name, colour string
	of           func(Distribution) float64
}{
	{"mean", chart.Blue, func(d Distribution) float64 { return d.Mean }}, {"50 %", chart.Grey, func(d Distribution) float64 { return d.P50 }},
	{"95 %", chart.Green, func(d Distribution) float64 { return d.P95 }}, {"99 %", chart.Violet, func(d Distribution) float64 { return d.P99 }},
	{"99.9 %", chart.Red, func(d Distribution) float64 { return d.P999 }},
}

// slowdownChart draws the slowdown by message size: a group of bars for each range of sizes, on a logarithmic axis.
func (r *Result) slowdownChart() *chart.Chart {
	buckets, most := r.Buckets(), 1.0
	group := min(chart.PlotWidth/float64(len(buckets)), 300)
	var names []string
	var at []float64
	for i, k := range buckets {
		most = max(most, k.Slowdown.P999)
		names = append(names, fmt.Sprintf("%s\nn = %d", k.Name(), k.Slowdown.Count))
		at = append(at, 0.5+(float64(i)+0.5-float64(len(buckets))/2)*group/chart.PlotWidth)
	}
	c := chart.New("FCT slowdown by size: "+r.title(), "times", chart.Names(names, at), chart.Log(1, most, nil))
	c.XTitle = "message size, with the number n of messages; slowdown 1 is an empty network"
	for i, k := range buckets {
		for n, s := range statistics {
			v := s.of(k.Slowdown)
			x := c.Bar(at[i], n, len(statistics), group*0.8, v, s.colour)
			if group*0.8 >= float64(24*len(statistics)) {
				c.Text(x, c.Y(v)-4, `text-anchor="middle" font-size="10"`, fmt.Sprintf("%.3g", v))
			}
		}
	}
	for _, s := range statistics {
		c.Legend(s.colour, s.name)
	}
	return c
}

// fctChart draws the cumulative distributions of completion times: as measured, and in an empty network.
func (r *Result) fctChart() *chart.Chart {
	var took, ideal []float64
	for i := range r.Flows {
		f := &r.Flows[i]
		took = append(took, float64(f.FCT)/float64(engine.Microsecond))
		if f.Ideal > 0 {
			ideal = append(ideal, float64(f.Ideal)/float64(engine.Microsecond))
		}
	}
	slices.Sort(took)
	slices.Sort(ideal)
	lo := took[0]
	if len(ideal) > 0 {
		lo = min(lo, ideal[0])
	}
	lo = max(lo, 1e-3)
	x := chart.Log(lo, max(took[len(took)-1], 1e-3), func(v float64) string {
		return engine.Time(math.Round(v * float64(engine.Microsecond))).Duration().String()
	})
	c := chart.New("Flow completion times, share of messages: "+r.title(), "%", x, chart.Linear(100, 5))
	for _, l := range []struct {
		colour string
		values []float64
	}{{chart.Grey, ideal}, {chart.Blue, took}} {
		c.Steps(l.colour, func(yield func(x, y float64) bool) {
			for i, v := range l.values {
				if i == 0 && !yield(v, 0) || !yield(v, 100*float64(i+1)/float64(len(l.values))) {
					return
				}
			}
		})
	}
	c.Legend(chart.Blue, fmt.Sprintf("%d messages completed within this time", len(took)))
	c.Legend(chart.Grey, "the same in an empty network")
	return c
}

// line is a series of a picture over time.
type line struct {
	name   string
	points []point
}

type point struct {
	at engine.Time
	v  float64
}

// series returns a line of one value of each sample.
func (r *Result) series(name string, value func(*Sample) float64) line {
	l := line{name: name}
	for i := range r.Samples {
		l.points = append(l.points, point{r.Samples[i].At, value(&r.Samples[i])})
	}
	return l
}

func (r *Result) queuesChart() *chart.Chart {
	lines := []line{r.series("all switches together", func(s *Sample) float64 { return float64(s.Queued) }),
		r.series("longest queue of a port", func(s *Sample) float64 { return float64(s.LongestQueue) })}
	index := map[string]int{}
	for _, q := range r.Queues {
		i, ok := index[q.Link]
		if !ok {
			i = len(lines)
			index[q.Link] = i
			lines = append(lines, line{name: "before " + q.Link})
		}
		lines[i].points = append(lines[i].points, point{q.At, float64(q.Bytes)})
	}
	return r.timeChart("Bytes queued in switches", []unit{{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}}, lines...)
}

func (r *Result) goodputChart() *chart.Chart {
	return r.timeChart("Received payload (goodput)", []unit{{1e12, "Tb/s"}, {1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}},
		r.series("all hosts together", func(s *Sample) float64 { return s.Goodput }))
}

func (r *Result) pausesChart() *chart.Chart {
	last := engine.Time(0)
	paused := r.series(fmt.Sprintf("paused links, mean between two samples (%d pauses in all)", r.Pauses), func(s *Sample) float64 {
		span := s.At - last
		last = s.At
		return float64(s.Paused) / float64(max(span, 1))
	})
	return r.timeChart("Links paused by PFC", []unit{{1, "links"}}, paused)
}

// unit is a unit of values.
type unit struct {
	size float64
	name string
}

// timeChart draws lines over time, in the largest unit that the highest value reaches.
func (r *Result) timeChart(title string, units []unit, lines ...line) *chart.Chart {
	most := 0.0
	for _, l := range lines {
		for _, p := range l.points {
			most = max(most, p.v)
		}
	}
	u := units[len(units)-1]
	if i := slices.IndexFunc(units, func(u unit) bool { return most >= u.size }); i >= 0 {
		u = units[i]
	}
	until := r.Samples[len(r.Samples)-1].At.Duration()
	c := chart.New(title+": "+r.title(), u.name, chart.Time(until, nil), chart.Linear(most/u.size, 8))
	for i, l := range lines {
		colour := chart.Palette[i%len(chart.Palette)]
		c.Steps(colour, func(yield func(x, y float64) bool) {
			for _, p := range l.points {
				if !yield(float64(p.at.Duration()), p.v/u.size) {
					return
				}
			}
		})
		c.Legend(colour, l.name)
	}
	return c
}
