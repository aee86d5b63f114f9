package papers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/scenario"
)

// ofCompleted are the quantities that only completed flows have.
var ofCompleted = append([]string{"query", "completion", "goodput"}, ofFlows...)

// bound widens the interval of a claim by the flows that did not finish. The mean over all flows is unbounded then, and
// at least the mean over the finished ones times their part of the flows. Other quantities are unbounded.
func (r *Row) bound(c *scenario.Claim, f *Found, point string, iv Interval) (Interval, string) {
	n := r.number(c.Number)
	if !slices.Contains(ofCompleted, n.Of) && (c.Base == "" || !slices.Contains(ofCompleted, r.number(c.Base).Of)) {
		return iv, ""
	}
	part := func(series string) float64 {
		if series == "" {
			return 0
		}
		return f.unfinished(r, series, point)
	}
	of, over := part(c.Of), part(c.Over)
	if c.From != "" { // a quotient of two points is unbounded on both sides
		point = c.From
		of = max(of, over, part(c.Of), part(c.Over))
		over = of
	}
	switch {
	case math.IsNaN(of) || math.IsNaN(over):
		return Interval{iv.Mean, math.NaN(), math.NaN(), iv.Logs}, "the stored runs do not count unfinished flows"
	case of == 0 && over == 0:
		return iv, ""
	}
	means := n.Take == "mean" && slices.Contains([]string{"fct", "slowdown"}, n.Of) && n.From == 0 && n.To == 0 && n.Bytes == 0 && len(n.Within) == 0
	if of > 0 {
		if iv.Hi = math.Inf(1); means {
			iv.Lo *= 1 - of
		} else {
			iv.Lo = 0
		}
	}
	if over > 0 {
		if iv.Lo = 0; means {
			iv.Hi /= 1 - over
		} else {
			iv.Hi = math.Inf(1)
		}
	}
	return iv, fmt.Sprintf("%.2g %% of flows did not finish", 100*max(of, over))
}

// number returns a number of the row.
func (r *Row) number(name string) *scenario.Number {
	i := slices.IndexFunc(r.Paper.Numbers, func(n scenario.Number) bool { return n.Name == name })
	return &r.Paper.Numbers[i]
}

// unfinished returns the greatest part of the flows that did not finish in a run; NaN if it is not known.
func (f *Found) unfinished(r *Row, series, point string) float64 {
	most := 0.0
	x := Run{Series: series, Point: point}
	for _, m := range f.Runs[x.Key()] {
		percent := m.Unfinished
		for i := range r.Paper.Numbers {
			if v, ok := m.Numbers[r.Paper.Numbers[i].Name]; ok && percent == nil && r.Paper.Numbers[i].Of == "unfinished" {
				percent = &v
			}
		}
		if percent == nil {
			return math.NaN()
		}
		most = max(most, *percent/100)
	}
	return most
}

// steady is the greatest ratio of the second half of a measurement to the first one that counts as stationary.
const steady = 1.1

// drift says which measurements of a claim are not stationary: the interval of the ratio of their halves is wholly beyond
// the limit.
func (r *Row) drift(c *scenario.Claim, f *Found) string {
	var list []string
	for _, one := range each(c) {
		list = append(list, r.drifts(&one, f)...)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) == 0 {
		return ""
	}
	return "second half over first: " + strings.Join(list, ", ")
}

// drifts lists the measurements of a claim with one number that are not stationary.
func (r *Row) drifts(c *scenario.Claim, f *Found) (list []string) {
	for _, series := range []string{c.Of, c.Over} {
		for _, point := range r.pointsOf(c, f, "") {
			x := Run{Series: series, Point: point}
			var halves []float64
			for _, m := range f.Runs[x.Key()] {
				if v, ok := m.Halves[c.Number]; ok {
					halves = append(halves, v)
				}
			}
			if iv := Over(halves, true); iv.Lo > steady || iv.Hi < 1/steady {
				list = append(list, fmt.Sprintf("%s %.2g", strings.TrimSuffix(x.Key(), "/"), iv.Mean))
			}
		}
	}
	return list
}
