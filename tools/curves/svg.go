package main

import (
	"fmt"
	"io"
	"math"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/observe/trace"
)

// colours of the events that are shown below the curve.
var colours = map[string]string{"cnp": "#d62728", "ecn": "#bc4c00", "loss": "#000000"}

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
	chart := trace.Chart{W: w, Title: c.title, Unit: label, Until: c.until, Most: most}
	chart.Begin()
	fmt.Fprint(w, `<path fill="none" stroke="#1f77b4" stroke-width="1.5" d="`)
	for i, p := range c.points {
		v := chart.Most
		if value(p) != ccalgo.Unlimited {
			v = float64(value(p)) / unit
		}
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(w, "%s%.1f %.1f", verb, chart.X(p.at), chart.Y(v))
	}
	fmt.Fprint(w, "\"/>\n")
	c.marks(w, &chart)
	chart.End()
}

// marks draws a stroke for each CNP, mark and loss, and the key to them.
func (c *curve) marks(w io.Writer, chart *trace.Chart) {
	x := trace.Left
	for _, kind := range []string{"cnp", "ecn", "loss"} {
		path := ""
		for _, e := range c.events {
			if (e.kind == kind || kind == "ecn" && e.ecn) && e.at <= c.until {
				path += fmt.Sprintf("M%.1f %dv8", chart.X(e.at), trace.Height-trace.Bottom+22)
			}
		}
		if path == "" {
			continue
		}
		fmt.Fprintf(w, `<path stroke="%s" d="%s"/><text x="%d" y="%d" fill="%s">| %s</text>`+"\n",
			colours[kind], path, x, trace.Height-10, colours[kind], kind)
		x += 60
	}
}
