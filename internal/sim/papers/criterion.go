package papers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Verdict is the result of a claim.
type Verdict int

// Verdicts do not overlap. They are in ascending order: the verdict of a row is the least of its claims.
const (
	NotRun          Verdict = iota // the stored results do not allow a verdict
	Contradicted                   // the interval is wholly on the other side of 1, or of the bound, at each point
	Mixed                          // it is at some points
	Undecided                      // the interval straddles 1, or the bound
	DependsOnChoice                // plausible settings that the paper leaves open disagree
	NumberOnly                     // the paper states similarity without a bound
	ModelInput                     // the value was put in
	Calibrated                     // a setting was inferred from the figure
	Direction                      // all else: the direction without the size
	Reproduced                     // the interval is within the tolerance
	NoVerdict                      // the row has no paper
)

var verdictNames = []string{"not run", "contradicted", "mixed", "undecided", "depends on choice", "number", "model input", "calibrated", "direction", "reproduced", "no verdict"}

// String returns the name of the verdict.
func (v Verdict) String() string { return verdictNames[v] }

// MarshalText returns its name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Global tolerances. No claim has one of its own.
const (
	tolerance    = 0.25  // part of the logarithm of the paper's ratio
	confidence   = 0.975 // quantile of the two-sided 95 % interval
	precision    = 0.25  // part of |ln p|: half of an interval that needs no more seeds
	mostSeeds    = 20    // also what a discrete outcome needs
	roundingSlip = 1e-12 // a value on a bound is within it
)

// mostFactor is the greatest tolerance of a ratio, for large effects.
var mostFactor = math.Log(1.25)

// Criterion is what a claim requires of a measured value. One of its forms applies.
type Criterion struct {
	// Effect is a ratio that differs from 1. The denominator may be either side: 1/Effect has the same verdicts.
	Effect float64
	// Bounds are the least and the greatest value that the paper allows.
	Bounds []float64
	// Order is the direction that the paper states without a size: 1 for more than Reference, -1 for less.
	Order int
	// Same is similarity that the paper states without a bound. No interval can confirm it.
	Same bool
	// Ideal is what a share is of; the other values are ratios to it. 0: none.
	Ideal float64
	// Reference is the value of no effect: 1 for ratios, 0 for differences. NaN: the quantity has none.
	Reference float64
}

// Tolerance returns the permitted distance of the logarithm of a ratio from that of the effect.
func (c *Criterion) Tolerance() float64 {
	return min(tolerance*math.Abs(math.Log(c.Effect)), mostFactor)
}

// Judge compares a confidence interval with the criterion.
func (c *Criterion) Judge(lo, hi float64) Verdict {
	lo, hi = lo/cmp.Or(c.Ideal, 1), hi/cmp.Or(c.Ideal, 1)
	switch {
	case math.IsNaN(lo) || math.IsNaN(hi) || lo > hi:
		return NotRun
	case c.Same:
		return NumberOnly
	case len(c.Bounds) > 0:
		return c.judgeBounds(lo, hi)
	case c.Ideal > 0:
		return c.judgeShare(lo, hi)
	}
	side := c.side(lo, hi, c.direction())
	if t := c.Tolerance() + roundingSlip; side == Direction && c.Order == 0 && c.Effect > 0 && c.distance(lo) <= t && c.distance(hi) <= t {
		return Reproduced
	}
	return side
}

// distance returns the distance of the logarithms of a ratio and the effect.
func (c *Criterion) distance(ratio float64) float64 { return math.Abs(math.Log(ratio / c.Effect)) }

// judgeShare compares a share of what is possible. It has no direction, because no share exceeds 1.
func (c *Criterion) judgeShare(lo, hi float64) Verdict {
	t := c.Tolerance() + roundingSlip
	switch {
	case c.distance(lo) <= t && c.distance(hi) <= t:
		return Reproduced
	case math.Log(hi/c.Effect) < -t || math.Log(lo/c.Effect) > t:
		return Contradicted
	}
	return Undecided
}

// misses reports whether a value is more than missed away from the paper's, or outside its bounds by as much.
func (c *Criterion) misses(v float64) bool {
	v /= cmp.Or(c.Ideal, 1)
	switch {
	case c.Same && c.Reference == 1:
		return v <= 0 || math.Abs(math.Log(v)) > missed
	case c.Same || c.Order != 0:
		return false
	case len(c.Bounds) == 0:
		return v <= 0 || c.distance(v) > missed
	case v < c.Bounds[0]:
		return v <= 0 || math.Log(c.Bounds[0]/v) > missed
	}
	return v > c.Bounds[1] && (c.Bounds[1] <= 0 || math.Log(v/c.Bounds[1]) > missed)
}

// missed is the distance of logarithms that the summary reports.
var missed = math.Log(1.1)

// direction returns on which side of the reference the paper's value is: 1, -1, or 0 for both.
func (c *Criterion) direction() int {
	switch {
	case c.Order != 0 || c.Same:
		return c.Order
	case len(c.Bounds) == 0 && c.Effect > 1, len(c.Bounds) > 0 && c.Bounds[0] > c.Reference:
		return 1
	case len(c.Bounds) == 0 && c.Effect < 1, len(c.Bounds) > 0 && c.Bounds[1] < c.Reference:
		return -1
	}
	return 0
}

// side compares an interval with the reference.
func (c *Criterion) side(lo, hi float64, direction int) Verdict {
	switch {
	case lo <= c.Reference && hi >= c.Reference:
		return Undecided
	case (lo > c.Reference) == (direction > 0):
		return Direction
	}
	return Contradicted
}

// judgeBounds requires the whole interval to lie inside. Bounds on one side of the reference have a direction.
func (c *Criterion) judgeBounds(lo, hi float64) Verdict {
	slip := func(x float64) float64 {
		if math.IsInf(x, 0) {
			return 0
		}
		return roundingSlip * math.Abs(x)
	}
	least, most := c.Bounds[0]-slip(c.Bounds[0]), c.Bounds[1]+slip(c.Bounds[1])
	switch d := c.direction(); {
	case lo >= least && hi <= most:
		return Reproduced
	case d != 0:
		return c.side(lo, hi, d)
	case hi < least || lo > most:
		return Contradicted
	}
	return Undecided
}

// Text formats the paper's value.
func (c *Criterion) Text() string {
	if c.Ideal > 0 && c.Same {
		return "similar to " + digits(c.Ideal, 4)
	}
	if c.Ideal > 0 {
		share := *c
		share.Ideal, share.Effect, share.Bounds = 0, c.Effect*c.Ideal, slices.Clone(c.Bounds)
		for i := range share.Bounds {
			share.Bounds[i] *= c.Ideal
		}
		return share.Text() + " of " + digits(c.Ideal, 4)
	}
	switch {
	case c.Same:
		return "similar"
	case c.Order > 0:
		return fmt.Sprintf("more than %g", c.Reference)
	case c.Order < 0:
		return fmt.Sprintf("less than %g", c.Reference)
	case len(c.Bounds) == 0:
		return digits(c.Effect, 4)
	case math.IsInf(c.Bounds[0], -1):
		return "at most " + digits(c.Bounds[1], 4)
	case math.IsInf(c.Bounds[1], 1):
		return "at least " + digits(c.Bounds[0], 4)
	case c.Bounds[0] == c.Bounds[1]:
		return digits(c.Bounds[0], 4)
	}
	return digits(c.Bounds[0], 4) + " to " + digits(c.Bounds[1], 4)
}

// digits formats a value with n significant digits. Values of pages are read beside each other, so it uses no exponents.
func digits(v float64, n int) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', n, 64), 64)
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// Interval is the mean of a value over seeds and its 95 % confidence interval.
type Interval struct {
	Mean, Lo, Hi float64
	Logs         bool // computed from logarithms: Mean is the geometric mean
}

// width returns half of the interval, as its distance from the mean.
func (i Interval) width() float64 {
	if i.Logs {
		return math.Log(i.Hi/i.Lo) / 2
	}
	return (i.Hi - i.Lo) / 2
}

// Over computes the interval of a value that each seed has once. A ratio is a quotient of series with the same flows,
// so its logarithms are paired. With a ratio of 0 the ratios themselves are used. A single seed has no interval: its
// bounds are NaN.
func Over(values []float64, ratio bool) Interval {
	logs := ratio && !slices.ContainsFunc(values, func(v float64) bool { return v <= 0 })
	x := slices.Clone(values)
	if logs {
		for i := range x {
			x[i] = math.Log(x[i])
		}
	}
	m, n := mean(x), float64(len(x))
	half := math.NaN()
	if len(x) > 1 {
		squares := 0.0
		for _, v := range x {
			squares += float64((v - m) * (v - m))
		}
		half = studentT[min(len(x)-2, len(studentT)-1)] * math.Sqrt(squares/(n-1)/n)
	}
	if logs {
		return Interval{math.Exp(m), math.Exp(m - half), math.Exp(m + half), true}
	}
	lo := m - half
	if ratio || len(values) > 0 && slices.Min(values) >= 0 { // no measured quantity is negative
		lo = max(lo, 0)
	}
	return Interval{m, lo, m + half, false}
}

// studentT has the quantiles of Student's t distribution at 0.975, by degrees of freedom from 1. Rows have at most 20
// seeds; the last value is conservative for more.
var studentT = []float64{12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814,
	2.20099, 2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// precise reports whether more seeds would not help. It depends on the width only, never on the verdict. Half of the
// interval of a ratio is below a quarter of |ln p|. An order has no p: the greatest tolerance takes the place of |ln p|.
func (c *Criterion) precise(i Interval) bool {
	if math.IsNaN(i.Lo) {
		return false
	}
	switch {
	case c.Same:
		return true
	case c.Order != 0 && c.Reference == 0: // a quantity, which is not a ratio
		return i.width() < precision*mostFactor*math.Abs(i.Mean)
	case c.Order != 0:
		return i.Logs && i.width() < precision*mostFactor
	case len(c.Bounds) == 0:
		return i.Logs && i.width() < precision*math.Abs(math.Log(c.Effect))
	}
	room := (c.Bounds[1] - c.Bounds[0]) / 2
	if i.Logs && c.Bounds[0] > 0 {
		room = math.Log(c.Bounds[1]/c.Bounds[0]) / 2
	} else if i.Logs {
		room = tolerance * math.Abs(math.Log(c.Bounds[1]))
	}
	return math.IsInf(room, 1) || room == 0 || i.width() < precision*room
}
