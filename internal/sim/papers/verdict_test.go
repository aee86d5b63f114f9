package papers

import (
	"encoding/json"
	"math"
	"testing"

	"roced.io/roced/internal/sim/scenario"
)

func number(v float64) *float64 { return &v }

// TestJudge checks the rules of verdicts, with a claim and a measured value each.
func TestJudge(t *testing.T) {
	times := scenario.Claim{Over: "x", Paper: []float64{2}}
	less := scenario.Claim{Over: "x", Paper: []float64{0.5}}
	between := scenario.Claim{Over: "x", Paper: []float64{2, 3}}
	explained := scenario.Claim{Over: "x", Paper: []float64{2}, Reason: "the baseline is worse"}
	part := scenario.Claim{Paper: []float64{99}, AtLeast: number(90)}
	few := scenario.Claim{Paper: []float64{8}, AtMost: number(50), Favour: "less"}
	other := scenario.Claim{Paper: []float64{45}, Kind: "baseline"}
	near := scenario.Claim{Over: "x", Paper: []float64{1, 1.025}, Tolerance: 0.03, AtMost: number(1.25), Favour: "less"}
	first := scenario.Claim{Over: "x", Kind: "order", AtLeast: number(1)}
	exact := scenario.Claim{Over: "x", Paper: []float64{2}, Tolerance: 0.05}
	for _, c := range []struct {
		name  string
		claim scenario.Claim
		v     float64
		want  Verdict
	}{
		{"as the paper", times, 2, Reproduced},
		{"a quarter less", times, 1.5, Reproduced},
		{"more than that less", times, 1.49, DirectionOnly},
		{"a quarter more", times, 2.5, Reproduced},
		{"up to twice, in its favour", times, 4, Reproduced},
		{"more than twice, in its favour", times, 4.01, DirectionOnly},
		{"that, and why", explained, 4.01, Reproduced},
		{"no difference", times, 1, NotReproduced},
		{"the other direction", times, 0.5, NotReproduced},
		{"nothing measured", times, math.NaN(), NotReproduced},
		{"divided by zero", times, math.Inf(1), NotReproduced},
		{"a ratio below one", less, 0.6, Reproduced},
		{"... not as far", less, 0.7, DirectionOnly},
		{"... half, in its favour", less, 0.25, Reproduced},
		{"... further", less, 0.24, DirectionOnly},
		{"... above one", less, 1.1, NotReproduced},
		{"within a range", between, 2.5, Reproduced},
		{"a quarter below a range", between, 1.5, Reproduced},
		{"below that", between, 1.4, DirectionOnly},
		{"twice above a range", between, 6, Reproduced},
		{"three points", part, 96, Reproduced},
		{"four points", part, 95, DirectionOnly},
		{"hardly any", part, 89, NotReproduced},
		{"less, which is better", few, 4, Reproduced},
		{"more than twice better", few, 3.9, DirectionOnly},
		{"more, which is worse", few, 12, DirectionOnly},
		{"a baseline", other, 50, Reproduced},
		{"another baseline", other, 96, DirectionOnly},
		{"about the same", near, 1.05, Reproduced},
		{"not quite the same", near, 1.1, DirectionOnly},
		{"another", near, 1.3, NotReproduced},
		{"an order", first, 7, Reproduced},
		{"the other order", first, 0.9, NotReproduced},
		{"a tolerance of its own", exact, 1.89, DirectionOnly},
	} {
		if err := checkClaim(&c.claim); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if v, why := Judge(&c.claim, c.v); v != c.want || v != Reproduced && why == "" {
			t.Errorf("%s: %v of %g is %v (%s), want %v", c.name, c.claim.Paper, c.v, v, why, c.want)
		}
	}
	for _, c := range []scenario.Claim{{}, {Kind: "order", Over: "x"}, {Kind: "order", Over: "x", Paper: []float64{2}, AtLeast: number(1)}, {Paper: []float64{3, 2}}, {Paper: []float64{99}}, {Over: "x", Paper: []float64{0.9, 1.1}}, {Over: "x", Paper: []float64{2}, Kind: "nonsense"}, {Over: "x", Paper: []float64{2}, Take: "some"}, {Over: "x", Paper: []float64{2}, Favour: "it"}} {
		if err := checkClaim(&c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestRow: the verdict of a row is that of its worst claim, by the means over its seeds. Missing values count as not
// measured.
func TestRow(t *testing.T) {
	r := &Row{ID: "x", Paper: &scenario.Paper{
		Series: []scenario.Variant{{Name: "a"}, {Name: "b"}}, Points: []scenario.Point{{Name: "p"}, {Name: "q"}},
		Claims: []scenario.Claim{{Number: "n", Of: "a", Over: "b", Paper: []float64{2}}, {Number: "n", Of: "a", Over: "b", Paper: []float64{4}, Take: "most"}},
	}}
	run := func(values ...float64) (ms []Measured) {
		for _, v := range values {
			ms = append(ms, Measured{Numbers: map[string]float64{"n": v}})
		}
		return ms
	}
	f := &Found{Runs: map[string][]Measured{"a/p": run(2, 4), "b/p": run(1, 2), "a/q": run(3, 5), "b/q": run(1, 1)}}
	j := r.Judge(f, "")
	first, second := j.Claims[0], j.Claims[1]
	if len(first.Values) != 2 || first.Values[0] != 2 || first.Values[1] != 4 || first.Ranges[1] != [2]float64{3, 5} || first.Verdict != Reproduced {
		t.Errorf("%+v", first)
	}
	if len(second.Values) != 1 || second.Values[0] != 4 || second.Verdict != Reproduced || j.Verdict != Reproduced {
		t.Errorf("%+v, %v", second, j.Verdict)
	}
	f.Runs["a/q"] = run(1, 1.4)
	if j := r.Judge(f, ""); j.Verdict != DirectionOnly {
		t.Errorf("%+v", j)
	}
	f.Runs["b/q"] = run(2, 2)
	if j := r.Judge(f, ""); j.Verdict != NotReproduced {
		t.Errorf("%+v", j)
	}
	f.Runs["b/q"] = run(0, 2)
	f.Runs["a/q"] = run(0, 2)
	j = r.Judge(f, "")
	if first := j.Claims[0]; j.Verdict != NotReproduced || len(first.Values) != 1 || len(first.Ranges) != 1 || first.Points[0] != "p" {
		t.Errorf("a ratio of 0 to 0: %+v", j)
	}
	if _, err := json.Marshal(r.Summarize(f, "fast")); err != nil {
		t.Error(err)
	}
	f.Runs["b/q"] = []Measured{{Error: "broken"}, {Error: "broken"}}
	if j := r.Judge(f, ""); j.Verdict != NotMeasured {
		t.Errorf("%+v", j)
	}
	delete(f.Runs, "b/q") // not part of this form
	if j := r.Judge(f, ""); len(j.Claims[0].Values) != 1 {
		t.Errorf("%+v", j)
	}
	if j := r.Judge(&Found{}, ""); j.Verdict != NotMeasured {
		t.Errorf("%+v", j)
	}
}
