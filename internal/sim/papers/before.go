package papers

import (
	"cmp"
	"math"
	"slices"

	"roced.io/roced/internal/sim/scenario"
)

// This file has the rules by which rows were judged first. They stay so that the page can show both verdicts.

// Verdicts of the first rules, in ascending order.
const (
	notReproducedBefore = iota
	directionBefore
	reproducedBefore
)

var namesBefore = []string{"not reproduced", "direction only", "reproduced"}

// before is a claim's first criterion.
type before struct {
	scenario.Before
	over bool // the value is a ratio of two series
}

func (c *before) kind() string {
	switch {
	case c.Kind != "":
		return c.Kind
	case c.over:
		return "ratio"
	}
	return "share"
}

// bounds returns the paper's figure without and with the tolerance.
func (c *before) bounds() (lo, hi, least, most float64) {
	lo, hi = c.Paper[0], c.Paper[len(c.Paper)-1]
	if c.kind() == "share" {
		t := cmp.Or(c.Tolerance, 3)
		return lo, hi, lo - t, hi + t
	}
	t := cmp.Or(c.Tolerance, 0.25)
	return lo, hi, lo - t*math.Abs(lo), hi + t*math.Abs(hi)
}

// favour returns on which side of the paper's figure a result is even better than the claim.
func (c *before) favour() string {
	if c.Favour == "" && c.kind() == "ratio" && c.AtLeast == nil && c.AtMost == nil {
		if c.Paper[0] > 1 {
			return "more"
		}
		return "less"
	}
	return c.Favour
}

// directed reports whether v has the direction of c.
func (c *before) directed(v float64) bool {
	if c.AtLeast == nil && c.AtMost == nil {
		return (v > 1) == (c.Paper[0] > 1) && v != 1
	}
	return (c.AtLeast == nil || v >= *c.AtLeast) && (c.AtMost == nil || v <= *c.AtMost)
}

// judge compares a mean over seeds with c.
func (c *before) judge(v float64) int {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return notReproducedBefore
	case c.kind() == "order" && c.directed(v):
		return reproducedBefore
	case c.kind() != "baseline" && !c.directed(v):
		return notReproducedBefore
	}
	lo, hi, least, most := c.bounds()
	if v >= least && v <= most {
		return reproducedBefore
	}
	beyond := c.favour() == "more" && v > most || c.favour() == "less" && v < least
	if c.kind() != "baseline" && beyond && (v <= 2*hi && v >= lo/2 || c.Reason != "") {
		return reproducedBefore
	}
	return directionBefore
}

// judgeAll returns the verdict on values by point and seed.
func (c *before) judgeAll(points [][]float64) string {
	take := map[string]func([]float64) float64{"most": slices.Max[[]float64], "least": slices.Min[[]float64], "mean": mean}[c.Take]
	if take != nil {
		var taken []float64
		for seed := range points[0] {
			var at []float64
			for _, p := range points {
				at = append(at, p[seed])
			}
			taken = append(taken, take(at))
		}
		points = [][]float64{taken}
	}
	worst := reproducedBefore
	for _, values := range points {
		worst = min(worst, c.judge(mean(values)))
	}
	return namesBefore[worst]
}
