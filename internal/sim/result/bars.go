package result

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"

	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/sim/engine"
)

// The diagram within a picture.
const (
	plotWidth, plotHeight = trace.Width - trace.Left - trace.Right, trace.Height - trace.Top - trace.Bottom
	plotBottom            = trace.Height - trace.Bottom
)

// begin draws what is around a diagram: the title, and the unit of the values above their axis.
func begin(b *bytes.Buffer, title, unit string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", trace.Width, trace.Height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", trace.Width, trace.Height)
	fmt.Fprintf(b, `<text x="%d" y="24" font-size="15">%s</text>`+"\n", trace.Left, html.EscapeString(title))
	fmt.Fprintf(b, `<text x="%d" y="24" text-anchor="end">%s</text>`+"\n", trace.Left-8, unit)
}

// lattice draws a horizontal line at y, with what it stands for.
func lattice(b *bytes.Buffer, y float64, label string) {
	fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
		trace.Left, y, trace.Width-trace.Right, trace.Left-8, y+4, label)
}

// logarithmic is an axis from one round number to another one.
type logarithmic struct{ from, to float64 }

// newLogarithmic returns an axis on which lo and hi are, and something is between its ends.
func newLogarithmic(lo, hi float64) logarithmic {
	a := logarithmic{1, 1}
	for a.from > lo {
		a.from /= 10
	}
	for a.from*10 <= lo {
		a.from *= 10
	}
	for _, m := range []float64{5, 2} {
		if a.from*m <= lo {
			a.from *= m
			break
		}
	}
	for a.to = a.from; a.to < hi || a.to == a.from; {
		a.to = a.next(a.to)
	}
	return a
}

// next is the next of the numbers 1, 2, 5, 10 ...
func (a logarithmic) next(v float64) float64 {
	if first := v / math.Pow(10, math.Floor(math.Log10(v)+1e-9)); math.Round(first) == 2 {
		return v * 2.5
	}
	return v * 2
}

// at is where v is between the ends, from 0 to 1.
func (a logarithmic) at(v float64) float64 {
	return math.Log(max(v, a.from)/a.from) / math.Log(a.to/a.from)
}

// marks yields the round numbers on the axis: 1, 2, 5 of each decade, or of very many decades only 1.
func (a logarithmic) marks(yield func(float64) bool) {
	all := a.to/a.from <= 1e5
	for v := a.from; v <= a.to*1.001; v = a.next(v) {
		if d := math.Log10(v); (all || math.Abs(d-math.Round(d)) < 1e-9) && !yield(v) {
			return
		}
	}
}

// statistics are what is shown of a distribution.
var statistics = []struct {
	name, colour string
	of           func(Distribution) float64
}{
	{"mean", blue, func(d Distribution) float64 { return d.Mean }}, {"50 %", grey, func(d Distribution) float64 { return d.P50 }},
	{"95 %", green, func(d Distribution) float64 { return d.P95 }}, {"99 %", violet, func(d Distribution) float64 { return d.P99 }},
	{"99.9 %", red, func(d Distribution) float64 { return d.P999 }},
}

// slowdownSVG draws how much longer than ideal messages took, by their size: a group of bars for
// each range of sizes, on a logarithmic axis.
func (r *Result) slowdownSVG() []byte {
	buckets, most := r.Buckets(), 1.0
	for _, k := range buckets {
		most = max(most, k.Slowdown.P999)
	}
	axis := newLogarithmic(1, most)
	y := func(v float64) float64 { return trace.Top + (1-axis.at(v))*plotHeight }
	var b bytes.Buffer
	begin(&b, "FCT slowdown by size: "+r.title(), "times")
	for v := range axis.marks {
		lattice(&b, y(v), fmt.Sprintf("%g", v))
	}
	group := min(plotWidth/float64(len(buckets)), 300)
	left := trace.Left + (plotWidth-group*float64(len(buckets)))/2
	for i := range buckets {
		k, x := &buckets[i], left+float64(i)*group
		bar := group * 0.8 / float64(len(statistics))
		for n, s := range statistics {
			v := s.of(k.Slowdown)
			at := x + group*0.1 + float64(n)*bar
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", at, y(v)-1, bar-1, plotBottom-y(v)+1, s.colour)
			if bar >= 24 {
				fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10">%.3g</text>`+"\n", at+bar/2, y(v)-4, v)
			}
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%s</text>`+"\n", x+group/2, plotBottom+14, k.name())
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10" fill="#666666">n = %d</text>`+"\n", x+group/2, plotBottom+28, k.Slowdown.Count)
	}
	for n, s := range statistics {
		key(&b, trace.Left+n*70, s.colour, s.name)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#666666">of n messages of that size; 1 is an empty network</text>`+"\n", trace.Width-trace.Right, trace.Height-10)
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

// key is an entry below the diagram.
func key(b *bytes.Buffer, x int, colour, name string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="9" height="9" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
		x, trace.Height-19, colour, x+13, trace.Height-10, html.EscapeString(name))
}

// fctSVG draws which part of the messages took at most how long, and how long that would be in an
// empty network.
func (r *Result) fctSVG() []byte {
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
	axis := newLogarithmic(max(lo, 1e-3), max(took[len(took)-1], 1e-3))
	x := func(v float64) float64 { return trace.Left + axis.at(v)*plotWidth }
	var b bytes.Buffer
	begin(&b, "Flow completion times, share of messages: "+r.title(), "%")
	for p := 0; p <= 100; p += 20 {
		lattice(&b, plotBottom-float64(p)/100*plotHeight, fmt.Sprint(p))
	}
	for v := range axis.marks {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#eeeeee"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x(v), trace.Top, plotBottom, x(v), plotBottom+18, engine.Time(math.Round(v*float64(engine.Microsecond))).Duration())
	}
	for _, l := range []struct {
		colour string
		values []float64
	}{{grey, ideal}, {blue, took}} {
		distribution(&b, l.colour, l.values, x)
	}
	key(&b, trace.Left, blue, fmt.Sprintf("%d messages took at most so long", len(took)))
	key(&b, trace.Left+300, grey, "and would in an empty network")
	fmt.Fprint(&b, "</svg>\n")
	return b.Bytes()
}

// distribution draws the part of sorted values that are at most so large, in steps of at least
// half a pixel.
func distribution(b *bytes.Buffer, colour string, values []float64, x func(float64) float64) {
	if len(values) == 0 {
		return
	}
	fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.5" d="M%d %d`, colour, trace.Left, plotBottom)
	last := -1.0
	for i, v := range values {
		at, y := x(v), plotBottom-float64(i+1)/float64(len(values))*plotHeight
		if i+1 < len(values) && at-last < 0.5 && x(values[i+1])-last < 0.5 {
			continue
		}
		fmt.Fprintf(b, "H%.1fV%.1f", at, y)
		last = at
	}
	fmt.Fprintf(b, "H%d\"/>\n", trace.Width-trace.Right)
}
