package main

import (
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/chart"
)

// svg draws the curve: the window if the algorithm has one, else the rate.
func (c *curve) svg() []byte {
	value, label, unit := func(p point) uint64 { return p.rate }, "Gb/s", 1e9
	if window, _ := c.limits(); window {
		value, label, unit = func(p point) uint64 { return p.window }, "KiB", 1024
	}
	most := 0.0
	for _, p := range c.points {
		if v := value(p); v != ccalgo.Unlimited {
			most = max(most, float64(v)/unit)
		}
	}
	y := chart.Linear(most, 8)
	picture := chart.New(c.title, label, chart.Time(c.until, nil), y)
	picture.Line(chart.Blue, func(yield func(x, y float64) bool) {
		for _, p := range c.points {
			v := y.End
			if value(p) != ccalgo.Unlimited {
				v = float64(value(p)) / unit
			}
			if !yield(float64(p.at), v) {
				return
			}
		}
	}, false)
	c.marks(picture)
	return picture.SVG()
}

// marks draws a stroke for each CNP, mark and loss, with a legend.
func (c *curve) marks(picture *chart.Chart) {
	for _, kind := range []struct{ name, colour string }{{"cnp", chart.Red}, {"ecn", "#bc4c00"}, {"nack", "#8250df"}, {"loss", "#000000"}} {
		some := false
		picture.Events(kind.colour, func(yield func(x float64) bool) {
			for _, e := range c.events {
				if (e.kind == kind.name || kind.name == "ecn" && e.ecn) && e.at <= c.until {
					some = true
					if !yield(float64(e.at)) {
						return
					}
				}
			}
		})
		if some {
			picture.Legend(kind.colour, kind.name)
		}
	}
}

// limits reports whether the algorithm ever limits the window or the rate.
func (c *curve) limits() (window, rate bool) {
	for _, p := range c.points {
		window = window || p.window != ccalgo.Unlimited
		rate = rate || p.rate != ccalgo.Unlimited
	}
	return window, rate
}
