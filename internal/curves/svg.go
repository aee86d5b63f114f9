package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"time"

	"roced/ccalgo"
)

// The picture: its size, and where the diagram lies in it.
const (
	width, height            = 800, 400
	left, right, top, bottom = 80, 20, 40, 60
)

// colours of the events that are shown below the curve.
var colours = map[string]string{"cnp": "#d62728", "ecn": "#ff7f0e", "loss": "#000000"}

// svg draws the curve: the window if there is one, else the rate.
func (c *curve) svg(w io.Writer) {
	value, label := func(p point) uint64 { return p.rate }, "Gb/s"
	unit := 1e9
	if window, _ := c.limits(); window {
		value, label, unit = func(p point) uint64 { return p.window }, "KiB", 1024
	}
	most := 0.0
	for _, p := range c.points {
		if v := value(p); v != ccalgo.Unlimited {
			most = math.Max(most, float64(v)/unit)
		}
	}
	step := niceStep(most, 8)
	most = math.Max(math.Ceil(most/step), 1) * step
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(w, `<text x="%d" y="24" font-size="15">%s</text>`+"\n", left, html.EscapeString(c.title))
	fmt.Fprintf(w, `<text x="%d" y="24" text-anchor="end">%s</text>`+"\n", left-8, label)
	for v := 0.0; v <= most+step/2; v += step {
		y := yOf(v, most)
		fmt.Fprintf(w, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
			left, y, width-right, left-8, y+4, v)
	}
	c.timeAxis(w)
	fmt.Fprint(w, `<path fill="none" stroke="#1f77b4" stroke-width="1.5" d="`)
	for i, p := range c.points {
		v := most
		if value(p) != ccalgo.Unlimited {
			v = float64(value(p)) / unit
		}
		if i == 0 {
			fmt.Fprintf(w, "M%.1f %.1f", c.xOf(p.at), yOf(v, most))
			continue
		}
		fmt.Fprintf(w, "L%.1f %.1f", c.xOf(p.at), yOf(v, most))
	}
	fmt.Fprint(w, "\"/>\n")
	c.marks(w)
	fmt.Fprint(w, "</svg>\n")
}

// timeAxis draws lines and labels of the time.
func (c *curve) timeAxis(w io.Writer) {
	step := time.Duration(niceStep(float64(c.until), 10))
	for at := time.Duration(0); at <= c.until; at += step {
		x := c.xOf(at)
		fmt.Fprintf(w, `<path d="M%.1f %dV%d" stroke="#eeeeee"/><text x="%.1f" y="%d" text-anchor="middle">%v</text>`+"\n",
			x, top, height-bottom, x, height-bottom+18, at)
	}
}

// marks draws a stroke for each CNP, mark and loss, and the key to them.
func (c *curve) marks(w io.Writer) {
	x := left
	for _, kind := range []string{"cnp", "ecn", "loss"} {
		path := ""
		for _, e := range c.events {
			if (e.kind == kind || kind == "ecn" && e.ecn) && e.at <= c.until {
				path += fmt.Sprintf("M%.1f %dv8", c.xOf(e.at), height-bottom+22)
			}
		}
		if path == "" {
			continue
		}
		fmt.Fprintf(w, `<path stroke="%s" d="%s"/><text x="%d" y="%d" fill="%s">| %s</text>`+"\n",
			colours[kind], path, x, height-10, colours[kind], kind)
		x += 60
	}
}

func (c *curve) xOf(at time.Duration) float64 {
	return left + float64(at)/float64(c.until)*(width-left-right)
}

func yOf(v, most float64) float64 { return top + (1-v/most)*(height-top-bottom) }

// niceStep is 1, 2 or 5 times a power of ten, such that there are no more than n
// steps.
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
