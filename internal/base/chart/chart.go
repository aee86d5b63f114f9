// Package chart draws diagrams as SVG: steps, lines, points, bars and intervals over two axes, with a legend.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"iter"
	"math"
	"slices"
	"strings"
)

// Layout of a picture in pixels. The legend below the plot may take several lines.
const (
	Width      = 800
	PlotWidth  = Width - left - right
	PlotHeight = 300

	left, right, top = 80, 20, 40
	bottom           = top + PlotHeight
)

// Palette lists the colours of series whose number is not known in advance.
var Palette = []string{Blue, Red, Green, Violet, "#ff7f0e", "#8c564b", "#17becf", Grey, "#bcbd22", "#e377c2"}

// Colours of series.
const (
	Blue, Red, Green, Violet, Grey = "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#7f7f7f"
)

// Chart is a diagram. Methods that draw take values in the units of the axes; those that say so take pixels.
type Chart struct {
	XTitle, YTitle string // beside the axes; may be empty

	x, y   Axis
	b      bytes.Buffer
	legend []entry
}

type entry struct{ colour, text string }

// New returns a chart with its title and axes drawn. unit is the unit of the values, shown above their axis.
func New(title, unit string, x, y Axis) *Chart {
	c := &Chart{x: x, y: y}
	c.Text(left, 24, `font-size="15"`, title)
	c.Text(left-8, 24, `text-anchor="end"`, unit)
	c.drawPauses()
	for _, t := range y.ticks {
		c.printf(`<path d="M%d %.1fH%d" stroke="#dddddd"/>`, left, c.Y(t.at), Width-right)
		c.Text(left-8, c.Y(t.at)+4, `text-anchor="end"`, t.label)
	}
	free := 0.0 // labels that would overlap are left out
	for _, t := range x.ticks {
		at := c.X(t.at)
		if !x.named {
			c.printf(`<path d="M%.1f %dV%d" stroke="#eeeeee"/>`, at, top, bottom)
		}
		if x.named || at >= free {
			c.label(at, t.label)
			free = at + float64(7*len(t.label)+7)
		}
	}
	return c
}

// label writes the lines of a tick's label below the plot.
func (c *Chart) label(x float64, text string) {
	for i, line := range strings.Split(text, "\n") {
		style := `text-anchor="middle"`
		if c.x.small {
			style += ` font-size="10"`
		}
		if i > 0 {
			style += ` fill="#666666"`
		}
		c.Text(x, float64(bottom+16+14*i), style, line)
	}
}

func (c *Chart) printf(format string, args ...any) {
	fmt.Fprintf(&c.b, format+"\n", args...)
}

// X returns the pixel of a value on the horizontal axis.
func (c *Chart) X(v float64) float64 { return left + c.x.Place(v)*PlotWidth }

// Y returns the pixel of a value on the vertical axis.
func (c *Chart) Y(v float64) float64 { return top + (1-c.y.Place(v))*PlotHeight }

// Text writes text at a pixel; style has further attributes of SVG.
func (c *Chart) Text(x, y float64, style, text string) {
	c.printf(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, style, html.EscapeString(text))
}

// Legend adds an entry below the plot.
func (c *Chart) Legend(colour, text string) { c.legend = append(c.legend, entry{colour, text}) }

// SVG returns the picture.
func (c *Chart) SVG() []byte {
	y := float64(bottom + 50)
	if slices.ContainsFunc(c.x.ticks, func(t tick) bool { return strings.Contains(t.label, "\n") }) {
		y += 10
	}
	if c.XTitle != "" {
		c.Text(left+PlotWidth/2, y-12, `text-anchor="middle"`, c.XTitle)
		y += 8
	}
	if c.YTitle != "" {
		const middle = top + PlotHeight/2
		c.Text(18, middle, fmt.Sprintf(`transform="rotate(-90 18 %d)" text-anchor="middle"`, middle), c.YTitle)
	}
	x := float64(left)
	for _, e := range c.legend {
		width := float64(7*len(e.text) + 24)
		if x+width > Width-right && x > left {
			x, y = left, y+16
		}
		c.Rect(x, y-9, 9, 9, e.colour)
		c.Text(x+13, y, "", e.text)
		x += width
	}
	height := int(y) + 10
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n"+
		`<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>`+"\n", Width, height)
	return []byte(head + c.b.String() + "</svg>\n")
}

// Rect fills a rectangle of pixels.
func (c *Chart) Rect(x, y, width, height float64, colour string) {
	c.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y, width, height, colour)
}

// Bar draws the i-th of n bars of a group at x, which is width pixels wide. It returns the pixel of the bar's middle.
func (c *Chart) Bar(x float64, i, n int, width, v float64, colour string) (middle float64) {
	bar := width / float64(n)
	from := c.X(x) - width/2 + float64(i)*bar
	if !math.IsNaN(v) {
		c.Rect(from, c.Y(v)-1, max(bar-1, 1), max(bottom-c.Y(v), 0)+1, colour)
	}
	return from + bar/2
}

// Interval draws a vertical stroke between two values at a pixel.
func (c *Chart) Interval(x, from, to float64) {
	c.printf(`<path stroke="#333333" d="M%.1f %.1fV%.1f"/>`, x, c.Y(from), c.Y(to))
}

// Ring marks a value at a pixel by a hollow circle.
func (c *Chart) Ring(x, v float64, colour string) {
	c.printf(`<circle cx="%.1f" cy="%.1f" r="5" fill="#ffffff" stroke="%s" stroke-width="2"/>`, x, c.Y(v), colour)
}

// Events draws a short stroke below the plot at each of the values.
func (c *Chart) Events(colour string, at iter.Seq[float64]) {
	var path strings.Builder
	for x := range at {
		fmt.Fprintf(&path, "M%.1f %dv8", c.X(x), bottom+22)
	}
	if path.Len() > 0 {
		c.printf(`<path stroke="%s" d="%s"/>`, colour, path.String())
	}
}

// Line draws a line through the points. With dots it marks each of them.
func (c *Chart) Line(colour string, points iter.Seq2[float64, float64], dots bool) {
	var path strings.Builder
	verb := 'M'
	for x, y := range points {
		fmt.Fprintf(&path, "%c%.1f %.1f", verb, c.X(x), c.Y(y))
		verb = 'L'
		if dots {
			c.printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, c.X(x), c.Y(y), colour)
		}
	}
	c.stroke(colour, &path)
}

func (c *Chart) stroke(colour string, path *strings.Builder) {
	c.printf(`<path fill="none" stroke="%s" stroke-width="1.5" d="%s"/>`, colour, path.String())
}

// Points draws a dot at each point, larger dots if there are few. It draws dots that cover each other once, so that
// a browser can show a picture of a million packets.
func (c *Chart) Points(colour string, points iter.Seq2[float64, float64]) {
	seen := map[[2]int]bool{}
	var path strings.Builder
	for x, y := range points {
		x, y = c.X(x), c.Y(y)
		if p := [2]int{int(x * 2), int(y * 2)}; !seen[p] {
			seen[p] = true
			fmt.Fprintf(&path, "M%.1f %.1fh0", x, y)
		}
	}
	width := 2
	if len(seen) < 50 {
		width = 5
	}
	c.printf(`<path stroke="%s" stroke-width="%d" stroke-linecap="round" d="%s"/>`, colour, width, path.String())
}

// Steps draws a line that keeps its value until the next point, and the last value until the end. Of several values
// at the same half pixel it draws the lowest, the highest and the last.
func (c *Chart) Steps(colour string, points iter.Seq2[float64, float64]) {
	var path strings.Builder
	first, lastX, lastY, low, high := true, 0.0, 0.0, 0.0, 0.0
	flush := func() { fmt.Fprintf(&path, "V%.1fV%.1fV%.1f", low, high, lastY) }
	for x, y := range points {
		x, y = math.Round(c.X(x)*2)/2, c.Y(y)
		switch {
		case first:
			fmt.Fprintf(&path, "M%.1f %.1f", x, y)
			low, high, first = y, y, false
		case x != lastX:
			flush()
			fmt.Fprintf(&path, "H%.1f", x)
			low, high = y, y
		}
		low, high = min(low, y), max(high, y)
		lastX, lastY = x, y
	}
	if !first {
		flush()
		fmt.Fprintf(&path, "H%d", Width-right)
	}
	c.stroke(colour, &path)
}
