package chart

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Axis maps values to positions and has labelled ticks.
type Axis struct {
	// Place returns the position of a value: 0 at the beginning of the axis, 1 at its end.
	Place func(v float64) float64
	// End is the value at the end of the axis.
	End float64

	ticks  []tick
	named  bool // ticks are names: no lines, no label is left out
	small  bool // labels have a small font
	pauses []Pause
}

type tick struct {
	at    float64
	label string
}

// Linear returns an axis from 0 to a round number that is at least most, with at most n steps.
func Linear(most float64, n int) Axis {
	step := niceStep(most, n)
	a := Axis{End: max(math.Ceil(most/step-1e-9), 1) * step}
	a.Place = func(v float64) float64 { return v / a.End }
	for v := 0.0; v <= a.End+step/2; v += step {
		a.ticks = append(a.ticks, tick{v, number(v, step)})
	}
	return a
}

// niceStep returns 1, 2 or 5 times a power of ten, such that at most n steps reach most.
func niceStep(most float64, n int) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, f := range []float64{1, 2, 5} {
		if most/(f*power) <= float64(n) {
			return f * power
		}
	}
	return 10 * power
}

// number writes a multiple of step without an exponent.
func number(v, step float64) string {
	return strconv.FormatFloat(v, 'f', max(0, int(math.Ceil(-math.Log10(step)-1e-9))), 64)
}

// Log returns a logarithmic axis that contains lo and hi, both above zero. It begins, ends and has ticks at 1, 2 and
// 5 times powers of ten, over many decades at powers of ten only. label writes a tick; nil: as a decimal number.
func Log(lo, hi float64, label func(v float64) string) Axis {
	if label == nil {
		label = func(v float64) string { return number(v, v) }
	}
	from := math.Pow(10, math.Floor(math.Log10(lo)+1e-9))
	for _, f := range []float64{5, 2} {
		if from*f <= lo {
			from *= f
			break
		}
	}
	values := []float64{from}
	for v := from; v < hi*(1-1e-9) || len(values) < 2; values = append(values, v) {
		v = next(v)
	}
	a := Axis{End: values[len(values)-1]}
	a.Place = func(v float64) float64 { return math.Log(max(v, from)/from) / math.Log(a.End/from) }
	for _, v := range values {
		if d := math.Log10(v); a.End/from <= 1e5 || math.Abs(d-math.Round(d)) < 1e-9 {
			a.ticks = append(a.ticks, tick{v, label(v)})
		}
	}
	return a
}

// next returns the number after v in the sequence 1, 2, 5, 10 ...
func next(v float64) float64 {
	if digit := v / math.Pow(10, math.Floor(math.Log10(v)+1e-9)); math.Round(digit) == 2 {
		return v * 2.5
	}
	return v * 2
}

// Names returns an axis with a name at each of the positions, from 0 to 1. A name may have several lines.
func Names(names []string, at []float64) Axis {
	a := Axis{Place: func(v float64) float64 { return v }, End: 1, named: true}
	for i, name := range names {
		a.ticks = append(a.ticks, tick{at[i], name})
		a.small = a.small || 7*len(name)*len(names) > PlotWidth
	}
	return a
}

// Pause is a span without events. A time axis shows that it exists and how long it was, not its length.
type Pause struct{ Start, Took time.Duration }

// pausePart is the part of the rest of the axis that a pause takes.
const pausePart = 0.03

// Time returns an axis from 0 to until; values are nanoseconds. pauses are in order.
func Time(until time.Duration, pauses []Pause) Axis {
	busy := until
	for _, p := range pauses {
		busy -= p.Took
	}
	width := float64(max(busy, 1)) * pausePart
	place := func(at time.Duration) float64 {
		var paused time.Duration
		widths := 0.0
		for _, p := range pauses {
			if at <= p.Start {
				break
			}
			inside := min(at-p.Start, p.Took)
			paused += inside
			widths += float64(inside) / float64(p.Took) * width
		}
		return float64(at-paused) + widths
	}
	length := place(until)
	a := Axis{End: float64(until), pauses: pauses}
	a.Place = func(v float64) float64 { return min(place(time.Duration(v))/length, 1) }
	step := max(time.Duration(niceStep(length, 10)), 1)
	for at := time.Duration(0); at <= until; at += step {
		i := slices.IndexFunc(pauses, func(p Pause) bool { return at > p.Start && at < p.Start+p.Took })
		if i >= 0 { // skip the pause, which may be many steps long
			at = (pauses[i].Start + pauses[i].Took - 1) / step * step
			continue
		}
		a.ticks = append(a.ticks, tick{float64(at), at.String()})
	}
	return a
}

// drawPauses draws a band for each pause, with its length if there is room.
func (c *Chart) drawPauses() {
	free := 0.0
	for _, p := range c.x.pauses {
		from, to := c.X(float64(p.Start)), c.X(float64(p.Start+p.Took))
		c.Rect(from, top, to-from, PlotHeight, "#f0f0f0")
		if middle := (from + to) / 2; middle >= free {
			c.Text(middle, top-4, `text-anchor="middle" font-size="10" fill="#555555"`, rounded(p.Took).String()+" idle")
			free = middle + 70
		}
	}
}

// rounded rounds to three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
