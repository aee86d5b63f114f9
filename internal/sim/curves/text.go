package main

import (
	"fmt"
	"strings"

	"roced.io/roced/ccalgo"
)

// text formats the curve as a table: a column for the window in bytes and one for the rate in Mb/s, if the
// algorithm limits them.
func (c *curve) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%10s", c.title, "time")
	window, rate := c.limits()
	if window {
		fmt.Fprintf(&b, " %12s", "window")
	}
	if rate {
		fmt.Fprintf(&b, " %12s", "Mb/s")
	}
	b.WriteByte('\n')
	for _, p := range c.points {
		fmt.Fprintf(&b, "%10v", p.at)
		if window {
			fmt.Fprintf(&b, " %12s", number(p.window, 1, 0))
		}
		if rate {
			fmt.Fprintf(&b, " %12s", number(p.rate, 1e6, 1))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func number(v uint64, unit float64, digits int) string {
	if v == ccalgo.Unlimited {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, float64(v)/unit)
}

// limits reports whether the algorithm ever limits the window or the rate.
func (c *curve) limits() (window, rate bool) {
	for _, p := range c.points {
		window = window || p.window != ccalgo.Unlimited
		rate = rate || p.rate != ccalgo.Unlimited
	}
	return window, rate
}
