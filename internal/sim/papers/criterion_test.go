package papers

import (
	"math"
	"testing"
)

// TestCriterion: each border of each form of a criterion.
func TestCriterion(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	two := Criterion{Effect: 2, Reference: 1}
	by := math.Exp(0.25 * math.Ln2) // tolerance of a ratio of 2
	half := Criterion{Effect: 0.5, Reference: 1}
	large := Criterion{Effect: 14, Reference: 1}
	near := Criterion{Effect: 1.03, Reference: 1}
	slip := math.Pow(1.03, 0.25)
	within := Criterion{Bounds: []float64{-inf, 1.025}, Reference: 1}
	between := Criterion{Bounds: []float64{1.5, 3}, Reference: 1}
	below := Criterion{Bounds: []float64{0.2, 0.8}, Reference: 1}
	upTo := Criterion{Bounds: []float64{1, 1.75}, Reference: 1}
	jain := Criterion{Bounds: []float64{0.996, 0.999}, Reference: nan}
	none := Criterion{Bounds: []float64{0, 0}, Reference: nan}
	more := Criterion{Order: 1, Reference: 1}
	less := Criterion{Order: -1, Reference: 1}
	some := Criterion{Order: 1, Reference: 0}
	for _, c := range []struct {
		name   string
		c      Criterion
		lo, hi float64
		want   Verdict
	}{
		{"an effect, exactly", two, 2, 2, Reproduced},
		{"an interval that touches both ends of the tolerance", two, 2 / by, 2 * by, Reproduced},
		{"an interval that crosses the lower end", two, 2/by - 1e-6, 2, Direction},
		{"an interval that crosses the upper end", two, 2, 2*by + 1e-6, Direction},
		{"a larger effect", two, 3, 4, Direction},
		{"an interval beside 1", two, 1 + 1e-9, 1.1, Direction},
		{"an interval that touches 1 from above", two, 1, 1.1, Undecided},
		{"an interval that touches 1 from below", two, 0.9, 1, Undecided},
		{"an interval that straddles 1", two, 0.9, 2, Undecided},
		{"the other direction", two, 0.5, 0.999, Contradicted},
		{"the same with the other denominator, touching", half, 1 / (2 * by), by / 2, Reproduced},
		{"the same, crossing", half, 0.5, by/2 + 1e-6, Direction},
		{"the same, the other direction", half, 1.001, 2, Contradicted},
		{"a large effect has at most 25 %", large, 14 / 1.25, 14 * 1.25, Reproduced},
		{"a large effect beyond 25 %", large, 14/1.25 - 1e-6, 14, Direction},
		{"a small effect has a small tolerance", near, 1.03 / slip, 1.03 * slip, Reproduced},
		{"a small effect and no effect", near, 1, 1.03, Undecided},
		{"a small effect, twice", near, 1.05, 1.06, Direction},
		{"zero", two, 0, 0, Contradicted},
		{"zero where less is claimed", half, 0, 0.3, Direction},
		{"NaN", two, nan, nan, NotRun},
		{"no lower end", two, nan, 2, NotRun},
		{"ends in the wrong order", two, 3, 2, NotRun},
		{"infinity", two, 2, inf, Direction},

		{"within a bound, touching", within, 0.5, 1.025, Reproduced},
		{"across a bound", within, 1, 1.026, Undecided},
		{"beyond a bound", within, 1.03, 1.05, Contradicted},
		{"within a range, touching both", between, 1.5, 3, Reproduced},
		{"below a range, in its direction", between, 1.2, 1.4, Direction},
		{"above a range", between, 3.2, 4, Direction},
		{"across an end of a range", between, 1.4, 1.6, Direction},
		{"a range, across 1", between, 0.9, 1.6, Undecided},
		{"a range, the other direction", between, 0.5, 0.9, Contradicted},
		{"a range below 1, beyond", below, 0.1, 0.15, Direction},
		{"a range below 1, the other direction", below, 1.1, 1.2, Contradicted},
		{"a range that begins at 1, inside", upTo, 1, 1.2, Reproduced},
		{"a range that begins at 1, across", upTo, 0.99, 1.2, Undecided},
		{"a range that begins at 1, outside", upTo, 0.9, 0.99, Contradicted},
		{"Jain's index", jain, 0.996, 0.999, Reproduced},
		{"Jain's index, better", jain, 0.9995, 1, Contradicted},
		{"Jain's index, across", jain, 0.99, 0.997, Undecided},
		{"none of it", none, 0, 0, Reproduced},
		{"some of it", none, 1, 2, Contradicted},
		{"some of it in some seeds", none, -1, 2, Undecided},
		{"a bound, NaN", jain, nan, 1, NotRun},

		{"an order never has a size", more, 1.5, 2, Direction},
		{"no order", more, 1, 2, Undecided},
		{"the other order", more, 0.5, 0.9, Contradicted},
		{"less", less, 0.5, 0.9, Direction},
		{"less, not", less, 1.1, 1.2, Contradicted},
		{"more than nothing", some, 0.1, 5, Direction},
		{"nothing", some, 0, 0, Undecided},
		{"a share of what is possible", Criterion{Effect: 0.941, Ideal: 40, Reference: 1}, 37.1, 38.1, Reproduced},
		{"a share across its tolerance", Criterion{Effect: 0.941, Ideal: 40, Reference: 1}, 36, 38, Undecided},
		{"a share below its tolerance", Criterion{Effect: 0.941, Ideal: 40, Reference: 1}, 35, 36, Contradicted},
		{"a share above its tolerance", Criterion{Effect: 0.5, Ideal: 40, Reference: 1}, 35, 36, Contradicted},
		{"similarity without a bound", Criterion{Same: true, Reference: 1}, 1, 1, NumberOnly},
	} {
		if got := c.c.Judge(c.lo, c.hi); got != c.want {
			t.Errorf("%s: %s of %g to %g is %v, want %v", c.name, c.c.Text(), c.lo, c.hi, got, c.want)
		}
	}
}

// TestReciprocal: the verdict does not depend on which series is the denominator.
func TestReciprocal(t *testing.T) {
	for p := 0.05; p < 20; p *= 1.07 {
		for lo := 0.03; lo < 30; lo *= 1.31 {
			hi := lo * 1.05
			a, b := Criterion{Effect: p, Reference: 1}, Criterion{Effect: 1 / p, Reference: 1}
			if x, y := a.Judge(lo, hi), b.Judge(1/hi, 1/lo); x != y {
				t.Errorf("%g of %g to %g is %v, the reciprocal %v", p, lo, hi, x, y)
			}
		}
	}
}

// TestOver: intervals are those of Student's t, of logarithms for ratios.
func TestOver(t *testing.T) {
	close := func(a, b float64) bool {
		return math.Abs(a-b) <= 1e-4*math.Max(1, math.Abs(b)) || math.IsNaN(a) && math.IsNaN(b)
	}
	for _, c := range []struct {
		name         string
		values       []float64
		ratio        bool
		mean, lo, hi float64
	}{
		{"differences", []float64{-1, 2, 5}, false, 2, 2 - 3*4.30265/math.Sqrt(3), 2 + 3*4.30265/math.Sqrt(3)},
		{"quantities, which are not negative", []float64{1, 2, 3}, false, 2, 0, 2 + 4.30265/math.Sqrt(3)},
		{"a ratio", []float64{1, 2, 4}, true, 2, 2 * math.Exp(-4.30265*math.Ln2/math.Sqrt(3)), 2 * math.Exp(4.30265*math.Ln2/math.Sqrt(3))},
		{"equal seeds", []float64{2, 2, 2}, true, 2, 2, 2},
		{"two seeds", []float64{-1, 3}, false, 1, 1 - 2*12.7062, 1 + 2*12.7062},
		{"one seed", []float64{2}, true, 2, math.NaN(), math.NaN()},
		{"no seed", nil, true, math.NaN(), math.NaN(), math.NaN()},
		{"a ratio of 0", []float64{0, 0.1, 0.2}, true, 0.1, 0, 0.1 + 4.30265*0.1/math.Sqrt(3)},
		{"zeros", []float64{0, 0, 0}, true, 0, 0, 0},
		{"NaN", []float64{1, math.NaN()}, true, math.NaN(), math.NaN(), math.NaN()},
	} {
		i := Over(c.values, c.ratio)
		if !close(i.Mean, c.mean) || !close(i.Lo, c.lo) || !close(i.Hi, c.hi) {
			t.Errorf("%s: %+v, want %g, %g to %g", c.name, i, c.mean, c.lo, c.hi)
		}
	}
}

// TestPrecise: only the width of an interval asks for more seeds.
func TestPrecise(t *testing.T) {
	for c, w := range map[*Criterion]float64{
		{Effect: 2, Reference: 1}: math.Ln2 / 4, {Effect: 0.5, Reference: 1}: math.Ln2 / 4, {Effect: 14, Reference: 1}: math.Log(14) / 4,
		{Order: 1, Reference: 1}: math.Log(1.25) / 4, {Order: -1, Reference: 1}: math.Log(1.25) / 4,
	} {
		for _, at := range []float64{0.5, 1, 2, 9} { // contradicted, undecided, reproduced, direction
			narrow := Interval{at, at * math.Exp(-w*0.99), at * math.Exp(w*0.99), true}
			wide := Interval{at, at * math.Exp(-w*1.01), at * math.Exp(w*1.01), true}
			if !c.precise(narrow) || c.precise(wide) {
				t.Errorf("%+v at %g: %v, %v", c, at, c.precise(narrow), c.precise(wide))
			}
		}
	}
	more := Criterion{Order: 1}
	if !more.precise(Interval{10, 9.5, 10.5, false}) || more.precise(Interval{10, 9.4, 10.6, false}) {
		t.Error("an order of a quantity")
	}
	c := Criterion{Effect: 2, Reference: 1}
	jain := Criterion{Bounds: []float64{0.996, 0.999}, Reference: math.NaN()}
	if !jain.precise(Interval{0.5, 0.4997, 0.5003, false}) || jain.precise(Interval{0.5, 0.4995, 0.5005, false}) {
		t.Error("bounds")
	}
	if c.precise(Over([]float64{2}, true)) {
		t.Error("one seed is precise")
	}
}

// TestMisses: the summary reports values that are more than 10 % away from the paper's.
func TestMisses(t *testing.T) {
	for _, c := range []struct {
		c    Criterion
		v    float64
		want bool
	}{
		{Criterion{Effect: 2}, 2.19, false}, {Criterion{Effect: 2}, 2.21, true}, {Criterion{Effect: 2}, 1.83, false}, {Criterion{Effect: 2}, 1.81, true}, {Criterion{Effect: 2}, 0, true},
		{Criterion{Effect: 0.95, Ideal: 40}, 35, false}, {Criterion{Effect: 0.95, Ideal: 40}, 34, true},
		{Criterion{Bounds: []float64{30, 100}}, 109, false}, {Criterion{Bounds: []float64{30, 100}}, 168, true}, {Criterion{Bounds: []float64{30, 100}}, 26, true},
		{Criterion{Bounds: []float64{0, 0}}, 1, true}, {Criterion{Bounds: []float64{0, 0}}, 0, false},
		{Criterion{Order: 1, Reference: 1}, 0.1, false}, {Criterion{Same: true, Reference: 1}, 0.92, false}, {Criterion{Same: true, Reference: 1}, 0.9, true},
	} {
		if got := c.c.misses(c.v); got != c.want {
			t.Errorf("%s: %g: %v", c.c.Text(), c.v, got)
		}
	}
}

func TestDigits(t *testing.T) {
	for want, v := range map[string]float64{"2340": 2341.7, "10000": 1e4, "0.0346": 0.03459, "0.000787": 0.00078712, "33": 33, "0": 0, "-1.23": -1.2345} {
		if got := digits(v, 3); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
