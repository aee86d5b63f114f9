package result

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/sim/engine"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// WriteSVG draws how long messages took, and, if there are samples, queues, goodput and pauses over
// time. It makes the folder, and returns the files.
func (r *Result) WriteSVG(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pictures := map[string][]byte{}
	if len(r.Flows) > 0 {
		pictures["slowdown.svg"], pictures["fct.svg"] = r.slowdownSVG(), r.fctSVG()
	}
	if len(r.Samples) > 0 {
		pictures["queues.svg"] = r.queuesSVG()
		pictures["goodput.svg"] = r.goodputSVG()
		if r.Pauses > 0 {
			pictures["pauses.svg"] = r.pausesSVG()
		}
	}
	for _, name := range sortedKeys(pictures) {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pictures[name], 0o644); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (r *Result) title() string { return fmt.Sprintf("%s, %s, seed %d", r.Name, r.Profile, r.Seed) }

// Colours.
const (
	blue, red, green, violet, grey = "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#7f7f7f"
)

// colours are those of lines whose number is not known.
var colours = []string{green, violet, "#ff7f0e", "#8c564b", "#e377c2", "#17becf"}

// line is a series of a picture over time.
type line struct {
	name, colour string
	points       []point
}

type point struct {
	at engine.Time
	v  float64
}

// series is a line of one value of each sample.
func (r *Result) series(name, colour string, value func(*Sample) float64) line {
	l := line{name: name, colour: colour}
	for i := range r.Samples {
		l.points = append(l.points, point{r.Samples[i].At, value(&r.Samples[i])})
	}
	return l
}

func (r *Result) queuesSVG() []byte {
	lines := []line{r.series("all switches together", blue, func(s *Sample) float64 { return float64(s.Queued) }),
		r.series("longest queue of a port", red, func(s *Sample) float64 { return float64(s.LongestQueue) })}
	index := map[string]int{}
	for _, q := range r.Queues {
		i, ok := index[q.Link]
		if !ok {
			i = len(lines)
			index[q.Link] = i
			lines = append(lines, line{name: "before " + q.Link, colour: colours[(i-2)%len(colours)]})
		}
		lines[i].points = append(lines[i].points, point{q.At, float64(q.Bytes)})
	}
	return r.timeSVG("Bytes queued in switches", []unit{{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}}, lines...)
}

func (r *Result) goodputSVG() []byte {
	return r.timeSVG("Payload that arrives (goodput)", []unit{{1e12, "Tb/s"}, {1e9, "Gb/s"}, {1e6, "Mb/s"}, {1e3, "kb/s"}},
		r.series("all hosts together", blue, func(s *Sample) float64 { return s.Goodput }))
}

func (r *Result) pausesSVG() []byte {
	last := engine.Time(0)
	stopped := r.series(fmt.Sprintf("links stopped, mean between two samples (%d pauses in all)", r.Pauses), blue, func(s *Sample) float64 {
		span := s.At - last
		last = s.At
		return float64(s.Paused) / float64(max(span, 1))
	})
	return r.timeSVG("Links that PFC has stopped", []unit{{1, "links"}}, stopped)
}

// unit is one in which values can be shown.
type unit struct {
	size float64
	name string
}

// timeSVG draws lines over time, in the largest of units that the highest value reaches.
func (r *Result) timeSVG(title string, units []unit, lines ...line) []byte {
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
	var b bytes.Buffer
	c := trace.Chart{W: &b, Title: title + ": " + r.title(), Unit: u.name, Until: r.Samples[len(r.Samples)-1].At.Duration(), Most: most / u.size}
	c.Begin()
	for _, l := range lines {
		c.Steps(l.colour, l.path(&c, u))
		c.Key(l.colour, l.name, 0)
	}
	c.End()
	return b.Bytes()
}

func (l *line) path(c *trace.Chart, u unit) iter.Seq2[float64, float64] {
	return func(yield func(x, y float64) bool) {
		for _, p := range l.points {
			if !yield(c.X(p.at.Duration()), c.Y(p.v/u.size)) {
				return
			}
		}
	}
}
