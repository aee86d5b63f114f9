package result

import (
	"bytes"
	"fmt"
	"html"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"roced/internal/observe/trace"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// WriteSVG draws the slowdown by size and, if there are samples, queues, pauses and goodput over
// time. It makes the folder, and returns the files.
func (r *Result) WriteSVG(dir string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	pictures := map[string][]byte{}
	if len(r.Flows) > 0 {
		pictures["slowdown.svg"] = r.slowdownSVG()
	}
	if len(r.Samples) > 0 {
		pictures["queues.svg"] = r.timeSVG("Bytes queued in switches", "KB",
			line{"all switches together", blue, func(s *Sample) float64 { return float64(s.Queued) / 1e3 }},
			line{"longest queue of a port", red, func(s *Sample) float64 { return float64(s.LongestQueue) / 1e3 }})
		pictures["goodput.svg"] = r.timeSVG("Payload of messages as they complete", "Gb/s",
			line{"all hosts together", blue, func(s *Sample) float64 { return s.Goodput / 1e9 }})
		if r.Pauses > 0 {
			pictures["pauses.svg"] = r.timeSVG("PFC frames that stop a link", "frames",
				line{"between two samples", blue, func(s *Sample) float64 { return float64(s.Pauses) }})
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

// Colours.
const (
	blue, red, green, violet, grey = "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#7f7f7f"
)

// line is a series of a picture over time.
type line struct {
	name, colour string
	value        func(*Sample) float64
}

// timeSVG draws lines over time.
func (r *Result) timeSVG(title, unit string, lines ...line) []byte {
	most := 0.0
	for _, l := range lines {
		for i := range r.Samples {
			most = max(most, l.value(&r.Samples[i]))
		}
	}
	var b bytes.Buffer
	c := trace.Chart{W: &b, Title: title + ": " + r.title(), Unit: unit, Until: r.Samples[len(r.Samples)-1].At.Duration(), Most: most}
	c.Begin()
	for _, l := range lines {
		c.Steps(l.colour, r.points(&c, l))
		c.Key(l.colour, l.name, 220)
	}
	c.End()
	return b.Bytes()
}

func (r *Result) points(c *trace.Chart, l line) iter.Seq2[float64, float64] {
	return func(yield func(x, y float64) bool) {
		for i := range r.Samples {
			if s := &r.Samples[i]; !yield(c.X(s.At.Duration()), c.Y(l.value(s))) {
				return
			}
		}
	}
}

func (r *Result) title() string { return fmt.Sprintf("%s, %s, seed %d", r.Name, r.Profile, r.Seed) }

// slowdownSVG draws how much longer than ideal messages took, by their size: one column for each
// range of sizes, on a logarithmic axis.
func (r *Result) slowdownSVG() []byte {
	buckets := r.Buckets()
	most := 1.0
	for _, b := range buckets {
		most = max(most, b.Slowdown.P999)
	}
	decades := max(math.Ceil(math.Log10(most)), 1)
	const width, height = trace.Width - trace.Left - trace.Right, trace.Height - trace.Top - trace.Bottom
	x := func(i int) float64 { return trace.Left + (float64(i)+0.5)*width/float64(len(buckets)) }
	y := func(v float64) float64 { return trace.Top + (1-math.Log10(max(v, 1))/decades)*height }
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", trace.Width, trace.Height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", trace.Width, trace.Height)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="15">Slowdown of messages by size: %s</text>`+"\n", trace.Left, html.EscapeString(r.title()))
	fmt.Fprintf(&b, `<text x="%d" y="24" text-anchor="end">times</text>`+"\n", trace.Left-8)
	for d := 0.0; d <= decades; d++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, d); v <= math.Pow(10, decades) {
				fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
					trace.Left, y(v), trace.Width-trace.Right, trace.Left-8, y(v)+4, v)
			}
		}
	}
	for i := range buckets {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="11">%s</text><text x="%.1f" y="%d" text-anchor="middle" font-size="10" fill="#777777">%d</text>`+"\n",
			x(i), trace.Height-trace.Bottom+16, buckets[i].name(), x(i), trace.Height-trace.Bottom+30, buckets[i].Slowdown.Count)
	}
	key := trace.Left
	for _, s := range []struct {
		name, colour string
		of           func(Distribution) float64
	}{
		{"mean", blue, func(d Distribution) float64 { return d.Mean }}, {"50 %", grey, func(d Distribution) float64 { return d.P50 }},
		{"95 %", green, func(d Distribution) float64 { return d.P95 }}, {"99 %", violet, func(d Distribution) float64 { return d.P99 }},
		{"99.9 %", red, func(d Distribution) float64 { return d.P999 }},
	} {
		fmt.Fprintf(&b, `<path fill="none" stroke="%s" stroke-width="1.5" d="`, s.colour)
		for i := range buckets {
			fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(i, 1)], x(i), y(s.of(buckets[i].Slowdown)))
		}
		fmt.Fprint(&b, "\"/>\n")
		for i := range buckets {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(i), y(s.of(buckets[i].Slowdown)), s.colour)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", key, trace.Height-10, s.colour, s.name)
		key += 100
	}
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}
