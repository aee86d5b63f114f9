package papers

import (
	"math"
	"slices"

	"roced.io/roced/internal/base/chart"
	"roced.io/roced/internal/sim/scenario"
)

// cellValue is the value of a series at a point: the mean over seeds with its 95 % interval, and the paper's value. NaN:
// unknown.
type cellValue struct {
	mean, lo, hi, paper float64
}

// picture is the diagram of a row.
type picture struct {
	r      *Row
	points []scenario.Point // on the horizontal axis
	names  []string         // of series
	values [][]cellValue    // by series, by point
}

// Picture draws a row as the paper does, with the same axes and series. Hollow marks are the paper's values. It
// returns nil if there are no measurements.
func (r *Row) Picture(f *Found, form string) []byte {
	d := &picture{r: r}
	if !d.collect(f) {
		return nil
	}
	axes := &r.Paper.Axes
	x := positions(d.points, axes.Bars)
	var names []string
	for _, pt := range d.points {
		names = append(names, pt.Name)
	}
	c := chart.New(r.ID+": "+r.Paper.Title+" ("+form+" form)", "", chart.Names(names, x), d.axis())
	c.XTitle, c.YTitle = axes.X, axes.Y
	for i := range d.names {
		d.draw(c, i, x)
		c.Legend(colour(i), d.names[i])
	}
	if d.spread() {
		c.Legend("none", "|  95 % interval over seeds")
	}
	if len(r.Paper.Figure) > 0 {
		c.Legend("none", "o  the paper")
	}
	return c.SVG()
}

// spread reports whether a value has an interval.
func (d *picture) spread() bool {
	return slices.ContainsFunc(d.values, func(row []cellValue) bool {
		return slices.ContainsFunc(row, func(v cellValue) bool { return v.hi > v.lo })
	})
}

// collect selects the points and series that have values.
func (d *picture) collect(f *Found) bool {
	p := d.r.Paper
	overNumbers := len(p.Axes.Numbers) > 0
	all := p.Points
	if len(p.Axes.At) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(pt scenario.Point) bool { return !slices.Contains(p.Axes.At, pt.Name) })
	}
	if overNumbers {
		all = nil
		for i, n := range p.Axes.Numbers {
			all = append(all, scenario.Point{Name: n, X: float64(i)})
		}
	}
	known := func(v cellValue) bool { return !math.IsNaN(v.mean) }
	for i := range all {
		if slices.ContainsFunc(p.Series, func(s scenario.Variant) bool { return known(d.value(f, s.Name, &all[i], overNumbers)) }) {
			d.points = append(d.points, all[i])
		}
	}
	for _, s := range p.Series {
		var row []cellValue
		for i := range d.points {
			row = append(row, d.value(f, s.Name, &d.points[i], overNumbers))
		}
		if slices.ContainsFunc(row, known) {
			d.names, d.values = append(d.names, s.Name), append(d.values, row)
		}
	}
	return len(d.points) > 0
}

func (d *picture) value(f *Found, series string, pt *scenario.Point, overNumbers bool) cellValue {
	number, point := d.r.Paper.Axes.Number, pt.Name
	if overNumbers {
		number, point = pt.Name, d.r.Paper.Points[0].Name
		if at := d.r.Paper.Axes.At; len(at) > 0 {
			point = at[0]
		}
	}
	out := cellValue{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	if values := f.number(series, point, "", number); len(values) > 0 {
		iv := Over(values, d.r.Paper.Axes.Log)
		out = cellValue{iv.Mean, iv.Lo, iv.Hi, math.NaN()}
	}
	for _, curve := range d.r.Paper.Figure {
		if v, ok := curve.Values[pt.Name]; ok && curve.Series == series {
			out.paper = v
		}
	}
	return out
}

// axis returns the vertical axis.
func (d *picture) axis() chart.Axis {
	most, least := 0.0, math.Inf(1)
	for _, row := range d.values {
		for _, v := range row {
			for _, u := range []float64{v.lo, v.hi, v.mean, v.paper} {
				if math.IsNaN(u) || math.IsInf(u, 0) {
					continue
				}
				most = max(most, u)
				if u > 0 {
					least = min(least, u)
				}
			}
		}
	}
	if d.r.Paper.Axes.Log && least < math.Inf(1) {
		return chart.Log(least*0.9, most, nil)
	}
	return chart.Linear(most, 7)
}

// positions returns the places of points, from 0 to 1. Bars and points without numbers are at equal distances.
func positions(points []scenario.Point, bars bool) []float64 {
	x := make([]float64, len(points))
	lo, hi := points[0].X, points[len(points)-1].X
	for i, pt := range points {
		if bars || hi <= lo {
			x[i] = (float64(i) + 0.5) / float64(len(points))
		} else {
			x[i] = 0.03 + 0.94*(pt.X-lo)/(hi-lo)
		}
	}
	return x
}

func colour(i int) string { return chart.Palette[i%len(chart.Palette)] }

// draw draws the i-th series, with its intervals and the paper's values.
func (d *picture) draw(c *chart.Chart, i int, x []float64) {
	bars := d.r.Paper.Axes.Bars
	if !bars {
		c.Line(colour(i), func(yield func(x, y float64) bool) {
			for k, v := range d.values[i] {
				if !math.IsNaN(v.mean) && !yield(x[k], v.mean) {
					return
				}
			}
		}, true)
	}
	for k, v := range d.values[i] {
		at := c.X(x[k])
		if bars {
			at = c.Bar(x[k], i, len(d.names), chart.PlotWidth/float64(len(x))*0.8, v.mean, colour(i))
		}
		if v.hi > v.lo {
			c.Interval(at, v.lo, v.hi)
		}
		if !math.IsNaN(v.paper) {
			c.Ring(at, v.paper, colour(i))
		}
	}
}
