package papers

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/scenario"
)

// The picture: its size, and where the diagram lies in it.
const (
	width, height            = 800, 430
	left, right, top, bottom = 80, 20, 40, 90
	plotW, plotH             = width - left - right, height - top - bottom
)

var palette = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22", "#e377c2"}

// place is what is measured of a series at a place of the horizontal axis, and what the paper has there.
type place struct {
	mean, lo, hi, paper float64
}

// chart is the picture of a row.
type chart struct {
	r      *Row
	places []string  // of the horizontal axis
	names  []string  // of series
	values [][]place // by series, by place
	x      []float64 // 0 to 1
	y      func(v float64) float64
	b      bytes.Buffer
}

// Picture draws a row as the paper does: the same axes and series, with what the paper says as
// hollow marks. It is nil if nothing has been measured.
func (r *Row) Picture(f *Found, form string) []byte {
	c := &chart{r: r}
	if !c.collect(f) {
		return nil
	}
	c.frame(form)
	for i := range c.names {
		if r.Paper.Axes.Bars {
			c.bars(i)
		} else {
			c.line(i)
		}
	}
	c.keys()
	c.b.WriteString("</svg>\n")
	return c.b.Bytes()
}

// collect takes what is shown from what has been found.
func (c *chart) collect(f *Found) bool {
	p := c.r.Paper
	overNumbers := len(p.Axes.Numbers) > 0
	points := p.Points
	if len(p.Axes.At) > 0 {
		points = slices.DeleteFunc(slices.Clone(points), func(pt scenario.Point) bool { return !slices.Contains(p.Axes.At, pt.Name) })
	}
	if overNumbers {
		points = nil
		for i, n := range p.Axes.Numbers {
			points = append(points, scenario.Point{Name: n, X: float64(i)})
		}
	}
	var shown []scenario.Point
	for _, pt := range points {
		if c.any(f, &pt, overNumbers) {
			shown = append(shown, pt)
			c.places = append(c.places, pt.Name)
		}
	}
	if len(shown) == 0 {
		return false
	}
	c.x = positions(shown, p.Axes.Bars)
	for _, s := range p.Series {
		row, some := make([]place, len(shown)), false
		for k := range shown {
			row[k] = c.place(f, s.Name, &shown[k], overNumbers)
			some = some || !math.IsNaN(row[k].mean)
		}
		if some {
			c.names, c.values = append(c.names, s.Name), append(c.values, row)
		}
	}
	return true
}

func (c *chart) any(f *Found, pt *scenario.Point, overNumbers bool) bool {
	for _, s := range c.r.Paper.Series {
		if !math.IsNaN(c.place(f, s.Name, pt, overNumbers).mean) {
			return true
		}
	}
	return false
}

func (c *chart) place(f *Found, series string, pt *scenario.Point, overNumbers bool) place {
	number, point := c.r.Paper.Axes.Number, pt.Name
	if overNumbers {
		number, point = pt.Name, c.r.Paper.Points[0].Name
		if at := c.r.Paper.Axes.At; len(at) > 0 {
			point = at[0]
		}
	}
	nan := math.NaN()
	out := place{nan, math.Inf(1), math.Inf(-1), nan}
	if values := f.number(series, point, "", number); values != nil {
		out.mean = mean(values)
		for _, v := range values {
			out.lo, out.hi = min(out.lo, v), max(out.hi, v)
		}
	}
	for _, curve := range c.r.Paper.Figure {
		if v, ok := curve.Values[pt.Name]; ok && curve.Series == series {
			out.paper = v
		}
	}
	return out
}

// positions are where points are: bars and points without numbers one beside the other.
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

// frame draws what is around the diagram.
func (c *chart) frame(form string) {
	p := c.r.Paper
	most, least := 0.0, math.Inf(1)
	for _, row := range c.values {
		for _, v := range row {
			for _, u := range []float64{v.hi, v.mean, v.paper} {
				if !math.IsNaN(u) && !math.IsInf(u, 0) {
					most = max(most, u)
					if u > 0 {
						least = min(least, u)
					}
				}
			}
		}
	}
	if most <= 0 {
		most = 1
	}
	fmt.Fprintf(&c.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&c.b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&c.b, `<text x="%d" y="24" font-size="15">%s</text>`+"\n", left, html.EscapeString(c.r.ID+": "+p.Title+" ("+form+" form)"))
	fmt.Fprintf(&c.b, `<text x="18" y="%d" transform="rotate(-90 18 %d)" text-anchor="middle">%s</text>`+"\n", top+plotH/2, top+plotH/2, html.EscapeString(p.Axes.Y))
	fmt.Fprintf(&c.b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+plotW/2, height-bottom+38, html.EscapeString(p.Axes.X))
	marks := linear(most)
	top := marks[len(marks)-1]
	c.y = func(v float64) float64 { return height - bottom - v/top*plotH }
	if p.Axes.Log && least < math.Inf(1) {
		marks = decades(least, most)
		from, to := math.Log(marks[0]), math.Log(marks[len(marks)-1])
		c.y = func(v float64) float64 { return height - bottom - (math.Log(max(v, marks[0]))-from)/(to-from)*plotH }
	}
	for _, v := range marks {
		fmt.Fprintf(&c.b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n", left, c.y(v), width-right, left-8, c.y(v)+4, v)
	}
	for i, name := range c.places {
		fmt.Fprintf(&c.b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", left+c.x[i]*plotW, height-bottom+18, html.EscapeString(name))
	}
}

// linear are the marks of an axis from zero to most.
func linear(most float64) (marks []float64) {
	step := math.Pow(10, math.Floor(math.Log10(most/6)))
	for _, f := range []float64{1, 2, 5, 10} {
		if most/(f*step) <= 7 {
			step *= f
			break
		}
	}
	n := math.Ceil(most/step - 1e-9)
	for i := 0.0; i <= n; i++ {
		marks = append(marks, i*step)
	}
	return marks
}

// decades are the marks of a logarithmic axis, 1, 2 and 5 of each decade, on which lo and hi lie.
func decades(lo, hi float64) (marks []float64) {
	for d := math.Pow(10, math.Floor(math.Log10(lo))); ; d *= 10 {
		for _, f := range []float64{1, 2, 5} {
			v := d * f
			if v*2.5 > lo {
				marks = append(marks, v)
			}
			if v >= hi && len(marks) > 1 {
				return marks
			}
		}
	}
}

func (c *chart) bars(i int) {
	group := plotW / float64(len(c.places)) * 0.8
	bar := group / float64(len(c.names))
	for k, v := range c.values[i] {
		x := left + c.x[k]*plotW - group/2 + float64(i)*bar
		if !math.IsNaN(v.mean) {
			fmt.Fprintf(&c.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, c.y(v.mean), max(bar-1, 1), max(height-bottom-c.y(v.mean), 0), c.colour(i))
		}
		c.marks(i, x+bar/2, v)
	}
}

func (c *chart) line(i int) {
	var path strings.Builder
	for k, v := range c.values[i] {
		x := left + c.x[k]*plotW
		if !math.IsNaN(v.mean) {
			letter := "L"
			if path.Len() == 0 {
				letter = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", letter, x, c.y(v.mean))
			fmt.Fprintf(&c.b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, c.y(v.mean), c.colour(i))
		}
		c.marks(i, x, v)
	}
	fmt.Fprintf(&c.b, `<path fill="none" stroke="%s" stroke-width="1.5" d="%s"/>`+"\n", c.colour(i), path.String())
}

// marks draws the range over seeds, and the paper's value.
func (c *chart) marks(i int, x float64, v place) {
	if v.hi > v.lo {
		fmt.Fprintf(&c.b, `<path stroke="#333333" d="M%.1f %.1fV%.1f"/>`+"\n", x, c.y(v.lo), c.y(v.hi))
	}
	if !math.IsNaN(v.paper) {
		fmt.Fprintf(&c.b, `<circle cx="%.1f" cy="%.1f" r="5" fill="#ffffff" stroke="%s" stroke-width="2"/>`+"\n", x, c.y(v.paper), c.colour(i))
	}
}

func (c *chart) colour(i int) string { return palette[i%len(palette)] }

// keys says what is what, in two lines at most.
func (c *chart) keys() {
	x, y := left, height-bottom+58
	entry := func(colour, text string) {
		if w := 7*len(text) + 24; x+w > width-right {
			x, y = left, y+16
		}
		fmt.Fprintf(&c.b, `<rect x="%d" y="%d" width="9" height="9" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", x, y-9, colour, x+13, y, html.EscapeString(text))
		x += 7*len(text) + 24
	}
	for i, name := range c.names {
		entry(c.colour(i), name)
	}
	if len(c.r.Paper.Figure) > 0 {
		entry("none", "o  the paper")
	}
}
