package papers

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/scenario"
)

// runs returns runs with a number each, which differ a little, as seeds do.
func runs(values ...float64) (ms []Measured) {
	for _, v := range values {
		ms = append(ms, Measured{Numbers: map[string]float64{"n": v * (1 + 1e-5*jitter.Float64())}, Unfinished: new(0.0)})
	}
	return ms
}

var jitter = rand.New(rand.NewPCG(1, 2))

// someRow returns a row of two series and two points with claims.
func someRow(claims ...scenario.Claim) *Row {
	for i := range claims {
		c := &claims[i]
		c.Number, c.Of, c.Quote = "n", "a", "q"
		if c.Ideal == 0 && len(c.Bounds) == 0 {
			c.Over = "b"
		}
	}
	return &Row{ID: "x", Paper: &scenario.Paper{Source: "a paper",
		Series: []scenario.Variant{{Name: "a"}, {Name: "b"}}, Points: []scenario.Point{{Name: "p"}, {Name: "q"}},
		Numbers: []scenario.Number{{Name: "n", Of: "fct", Take: "mean"}}, Claims: claims,
	}}
}

// TestRow: the verdict of a row is the least of its claims, and that of a claim the least of its points.
func TestRow(t *testing.T) {
	r := someRow(scenario.Claim{Paper: 2}, scenario.Claim{Paper: 4, Take: "most"}, scenario.Claim{Order: "more", Take: "mean"})
	f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 4, 6), "b/p": runs(1, 2, 3), "a/q": runs(4, 4, 4), "b/q": runs(1, 1, 1)}}
	check := func(what string, want ...Verdict) {
		t.Helper()
		j := r.Judge(f)
		least := NoVerdict
		for i, v := range want {
			if j.Claims[i].Verdict != v {
				t.Errorf("%s: claim %d is %v, want %v: %+v", what, i, j.Claims[i].Verdict, v, j.Claims[i])
			}
			least = min(least, v)
		}
		if j.Verdict != least {
			t.Errorf("%s: %v, want %v", what, j.Verdict, least)
		}
		if _, err := json.Marshal(r.Summarize(f, "fast")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("two points", Direction, Reproduced, Direction)
	f.Runs["a/q"] = runs(0.5, 0.5, 0.5)
	check("a point in the other direction", Mixed, Mixed, Mixed)
	f.Runs["a/q"] = runs(0.5, 1, 3)
	check("a point without a direction", Undecided, Undecided, Undecided)
	f.Runs["a/q"] = runs(0, 0, 0)
	f.Runs["b/q"] = runs(0, 1, 1)
	check("a ratio of 0 to 0", NotRun, NotRun, NotRun)
	f.Runs["b/q"] = []Measured{{Error: "broken"}, {Error: "broken"}, {Error: "broken"}}
	check("failed runs", NotRun, NotRun, NotRun)
	f.Runs["a/q"], f.Runs["b/q"] = runs(4), runs(1)
	check("one seed", NotRun, NotRun, NotRun)
	delete(f.Runs, "b/q") // not part of this form
	check("a point that is not planned", Reproduced, Direction, Direction)
	if j := r.Judge(&Found{}); j.Verdict != NotRun {
		t.Errorf("no runs: %+v", j)
	}
}

// TestTaken: an extreme or a mean of points counts only if the direction of each point passes.
func TestTaken(t *testing.T) {
	for _, c := range []struct {
		name  string
		take  string
		other []float64 // ratio at the second point; 2 at the first one
		want  Verdict
	}{
		{"the greatest", "most", []float64{1.2, 1.2, 1.2}, Reproduced},
		{"the least", "least", []float64{1.2, 1.2, 1.2}, Direction},
		{"the mean", "mean", []float64{2.1, 2.1, 2.1}, Reproduced},
		{"the mean of two far apart", "mean", []float64{6, 6, 6}, Direction},
		{"the greatest, beside no direction", "most", []float64{0.9, 1, 1.2}, Undecided},
		{"the mean, beside no direction", "mean", []float64{0.9, 1, 1.2}, Undecided},
		{"the greatest, beside the other direction", "most", []float64{0.9, 0.9, 0.9}, Mixed},
		{"the mean, beside the other direction", "mean", []float64{0.9, 0.9, 0.9}, Mixed},
		{"the least, beside missing runs", "least", nil, NotRun},
	} {
		r := someRow(scenario.Claim{Paper: 2, Take: c.take})
		f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 2, 2), "b/p": runs(1, 1, 1), "a/q": runs(c.other...), "b/q": runs(1, 1, 1)}}
		got := r.Judge(f).Claims[0]
		if got.Verdict != c.want {
			t.Errorf("%s: %v (%s), want %v", c.name, got.Verdict, got.Why, c.want)
		}
		if text := got.Text(); c.other != nil && (!strings.Contains(text, "p: 2") || !strings.Contains(text, "q: ")) {
			t.Errorf("%s: %q does not show all points", c.name, text)
		}
	}
}

// TestUnfair: Jain's index is judged as 1 less the index, which cannot be negative.
func TestUnfair(t *testing.T) {
	if v := pick("unfair", []float64{1, 3}); math.Abs(v-0.2) > 1e-12 {
		t.Errorf("%v: Jain's index of 1 and 3 is 0.8", v)
	}
	r := someRow(scenario.Claim{Bounds: []scenario.Bound{0, 0.004}})
	f := &Found{Runs: map[string][]Measured{"a/p": runs(0.0001, 0.0021, 0.0005)}}
	if c := r.Judge(f).Claims[0]; c.Verdict != Reproduced || *c.At[0].Lo != 0 {
		t.Errorf("%+v", c)
	}
}

// TestPaired: seeds differ much, but their ratios do not; series share their flows.
func TestPaired(t *testing.T) {
	r := someRow(scenario.Claim{Paper: 2})
	f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 19, 204), "b/p": runs(1, 9.6, 100)}}
	if c := r.Judge(f).Claims[0]; c.Verdict != Reproduced || *c.At[0].Hi > 2.2 {
		t.Errorf("%+v", c)
	}
}

// TestUnfinished: flows that did not finish bound a mean. They leave a percentile without a bound.
func TestUnfinished(t *testing.T) {
	for _, c := range []struct {
		name     string
		of, over float64
		take     string
		stored   bool
		want     Verdict
	}{
		{"all finished", 0, 0, "mean", true, Reproduced},
		{"a tenth of the numerator", 10, 0, "mean", true, Direction},
		{"six tenths of the numerator", 60, 0, "mean", true, Undecided},
		{"a tenth of the denominator", 0, 10, "mean", true, Undecided},
		{"of a percentile", 1, 0, "p99", true, Undecided},
		{"not counted", 0, 0, "mean", false, NotRun},
	} {
		r := someRow(scenario.Claim{Paper: 2})
		r.Paper.Numbers[0].Take = c.take
		f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 2.01, 2.02), "b/p": runs(1, 1, 1)}}
		f.Runs["a/p"][1].Unfinished, f.Runs["b/p"][2].Unfinished = new(c.of), new(c.over)
		if !c.stored {
			f.Runs["a/p"][0].Unfinished = nil
		}
		got := r.Judge(f).Claims[0]
		if got.Verdict != c.want || got.Verdict != Reproduced && got.Why == "" {
			t.Errorf("%s: %v (%s), want %v", c.name, got.Verdict, got.Why, c.want)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	}
}

// TestLess: reasons in the file of a row lower its verdicts, but do not replace missing runs.
func TestLess(t *testing.T) {
	f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 2, 2), "b/p": runs(1, 1, 1)}}
	for want, c := range map[Verdict]scenario.Claim{ModelInput: {Paper: 2, Input: "i"}, Calibrated: {Paper: 2, Calibrated: "c"}, DependsOnChoice: {Paper: 2, Depends: "d"}} {
		r := someRow(c)
		if got := r.Judge(f).Claims[0]; got.Verdict != want || got.Why == "" {
			t.Errorf("%v: %+v", want, got)
		}
		r.Paper.Claims[0].Void = "another setting"
		if got := r.Judge(f).Claims[0]; got.Verdict != NotRun || got.Why != "another setting" {
			t.Errorf("void: %+v", got)
		}
	}
	r := someRow(scenario.Claim{Paper: 2})
	r.Paper.Source = "own"
	if j := r.Judge(f); j.Verdict != NoVerdict || j.Claims[0].Verdict != NoVerdict || len(j.Claims[0].At) != 1 {
		t.Errorf("without a paper: %+v", j)
	}
}

// TestDisagrees: an alternative setting with another verdict, outside the range of the seeds, decides.
func TestDisagrees(t *testing.T) {
	for _, c := range []struct {
		other float64
		want  Verdict
	}{{2, Reproduced}, {2.05, Reproduced}, {3, DependsOnChoice}, {0.5, DependsOnChoice}} {
		r := someRow(scenario.Claim{Paper: 2})
		r.Paper.Open = []scenario.Open{{What: "w", Vary: []scenario.Choice{{Name: "other"}}}}
		f := &Found{Runs: map[string][]Measured{"a/p": runs(1.98, 2, 2.02), "b/p": runs(1, 1, 1), "other:a/p": runs(c.other), "other:b/p": runs(1)}}
		if got := r.Judge(f).Claims[0]; got.Verdict != c.want {
			t.Errorf("%g: %+v, want %v", c.other, got, c.want)
		}
	}
}

// TestRobustMiss: a claim that one point contradicts in all settings does not depend on a choice.
func TestRobustMiss(t *testing.T) {
	for _, c := range []struct {
		differ []int
		want   Verdict
	}{{[]int{0}, Mixed}, {[]int{0, 1}, DependsOnChoice}, {[]int{1}, DependsOnChoice}} {
		o := &Claim{Verdict: Mixed, At: []At{{Point: "p", verdict: Direction}, {Point: "q", verdict: Contradicted}}}
		if o.dependent([]string{"with x: 1, 2"}, c.differ); o.Verdict != c.want {
			t.Errorf("%v: %v (%s)", c.differ, o.Verdict, o.Why)
		}
	}
}

// TestDrift: halves of a measurement that differ in all seeds are reported.
func TestDrift(t *testing.T) {
	r := someRow(scenario.Claim{Paper: 2})
	f := &Found{Runs: map[string][]Measured{"a/p": runs(2, 2, 2), "b/p": runs(1, 1, 1)}}
	for _, c := range []struct {
		halves [3]float64
		want   bool
	}{{[3]float64{1, 1.05, 0.98}, false}, {[3]float64{1.5, 1.55, 1.6}, true}, {[3]float64{0.5, 0.5, 0.52}, true}, {[3]float64{1, 3, 1}, false}} {
		for i := range f.Runs["b/p"] {
			f.Runs["b/p"][i].Halves = map[string]float64{"n": c.halves[i]}
		}
		if got := r.Judge(f).Claims[0].Drift; strings.Contains(got, "b/p") != c.want {
			t.Errorf("%v: %q", c.halves, got)
		}
	}
}

// TestCheckClaim: a claim has one form of criterion and a quotation. A row without a paper has at most bounds.
func TestCheckClaim(t *testing.T) {
	q := func(c scenario.Claim) scenario.Claim { c.Quote = "q"; return c }
	for _, c := range []scenario.Claim{q(scenario.Claim{Over: "x", Paper: 2}), q(scenario.Claim{Ideal: 40, Paper: 0.9}), q(scenario.Claim{Bounds: []scenario.Bound{0, 0}}),
		q(scenario.Claim{Over: "x", Bounds: []scenario.Bound{scenario.Bound(math.Inf(-1)), 1.02}}), q(scenario.Claim{Over: "x", Order: "same"}), q(scenario.Claim{Over: "x", Bounds: []scenario.Bound{1.5, 2}, Take: "most"})} {
		if err := checkClaim(&c, false); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if got := checkClaim(&c, true) == nil; got != (len(c.Bounds) > 0) {
			t.Errorf("%+v without a paper: accepted is %v", c, got)
		}
	}
	for _, c := range []scenario.Claim{{Over: "x", Paper: 2}, q(scenario.Claim{}), q(scenario.Claim{Paper: 2}), q(scenario.Claim{Over: "x", Paper: 1}), q(scenario.Claim{Over: "x", Paper: -2}),
		q(scenario.Claim{Over: "x", Paper: math.NaN()}), q(scenario.Claim{Over: "x", Ideal: 2, Paper: 2}), q(scenario.Claim{Over: "x", Paper: 2, Order: "more"}),
		q(scenario.Claim{Bounds: []scenario.Bound{2}}), q(scenario.Claim{Bounds: []scenario.Bound{3, 2}}), q(scenario.Claim{Over: "x", Order: "greater"}),
		q(scenario.Claim{Over: "x", Paper: 2, Take: "some"}), q(scenario.Claim{Over: "x", Bounds: []scenario.Bound{0.9, 1.1}, Take: "most"})} {
		if checkClaim(&c, false) == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestMixed: a claim is contradicted only if each of its points is.
func TestMixed(t *testing.T) {
	for _, c := range []struct {
		a, b [3]float64
		want Verdict
	}{
		{[3]float64{2, 2, 2}, [3]float64{0.5, 0.5, 0.5}, Mixed},
		{[3]float64{0.4, 1, 3}, [3]float64{0.5, 0.5, 0.5}, Mixed},
		{[3]float64{0.5, 0.5, 0.5}, [3]float64{0.5, 0.5, 0.5}, Contradicted},
		{[3]float64{0.4, 1, 3}, [3]float64{2, 2, 2}, Undecided},
	} {
		r := someRow(scenario.Claim{Order: "more"})
		f := &Found{Runs: map[string][]Measured{"a/p": runs(c.a[:]...), "b/p": runs(1, 1, 1), "a/q": runs(c.b[:]...), "b/q": runs(1, 1, 1)}}
		got := r.Judge(f).Claims[0]
		if got.Verdict != c.want || c.want == Mixed && !strings.Contains(got.Why, "contradicted: q") {
			t.Errorf("%v, %v: %v (%s), want %v", c.a, c.b, got.Verdict, got.Why, c.want)
		}
	}
}

// TestDiscrete: outcomes with repeated values need 20 seeds.
func TestDiscrete(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		seeds  int
		want   Verdict
	}{
		{"seeds that differ", []float64{190, 191, 192}, 3, Reproduced},
		{"identical seeds", []float64{196}, 3, Undecided},
		{"two outcomes", []float64{196, 131}, 4, Undecided},
		{"two outcomes of 19", []float64{196, 131}, 19, Undecided},
		{"two outcomes of 20", []float64{196, 131}, 20, Reproduced},
		{"as many outcomes as not", []float64{190, 191, 192, 190, 191}, 5, Reproduced},
	} {
		r := someRow(scenario.Claim{Bounds: []scenario.Bound{130, 200}})
		var ms []Measured
		for i := range c.seeds {
			ms = append(ms, Measured{Numbers: map[string]float64{"n": c.values[i%len(c.values)]}, Unfinished: new(0.0)})
		}
		if got := r.Judge(&Found{Runs: map[string][]Measured{"a/p": ms}}).Claims[0]; got.Verdict != c.want {
			t.Errorf("%s: %v (%s), want %v", c.name, got.Verdict, got.Why, c.want)
		}
	}
}
