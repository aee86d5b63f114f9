package papers

import (
	"math"
	"testing"

	"roced.io/roced/internal/sim/scenario"
)

func number(v float64) *float64 { return &v }

// TestBefore checks the first rules of verdicts, with a criterion and a measured value each.
func TestBefore(t *testing.T) {
	times := before{scenario.Before{Paper: []float64{2}}, true}
	less := before{scenario.Before{Paper: []float64{0.5}}, true}
	between := before{scenario.Before{Paper: []float64{2, 3}}, true}
	explained := before{scenario.Before{Paper: []float64{2}, Reason: "the baseline is worse"}, true}
	part := before{scenario.Before{Paper: []float64{99}, AtLeast: number(90)}, false}
	few := before{scenario.Before{Paper: []float64{8}, AtMost: number(50), Favour: "less"}, false}
	other := before{scenario.Before{Paper: []float64{45}, Kind: "baseline"}, false}
	near := before{scenario.Before{Paper: []float64{1, 1.025}, Tolerance: 0.03, AtMost: number(1.25), Favour: "less"}, true}
	first := before{scenario.Before{Kind: "order", AtLeast: number(1)}, true}
	exact := before{scenario.Before{Paper: []float64{2}, Tolerance: 0.05}, true}
	for _, c := range []struct {
		name  string
		claim before
		v     float64
		want  int
	}{
		{"as the paper", times, 2, reproducedBefore},
		{"a quarter less", times, 1.5, reproducedBefore},
		{"more than that less", times, 1.49, directionBefore},
		{"a quarter more", times, 2.5, reproducedBefore},
		{"up to twice, in its favour", times, 4, reproducedBefore},
		{"more than twice, in its favour", times, 4.01, directionBefore},
		{"that, and why", explained, 4.01, reproducedBefore},
		{"no difference", times, 1, notReproducedBefore},
		{"the other direction", times, 0.5, notReproducedBefore},
		{"nothing measured", times, math.NaN(), notReproducedBefore},
		{"divided by zero", times, math.Inf(1), notReproducedBefore},
		{"a ratio below one", less, 0.6, reproducedBefore},
		{"... not as far", less, 0.7, directionBefore},
		{"... half, in its favour", less, 0.25, reproducedBefore},
		{"... further", less, 0.24, directionBefore},
		{"... above one", less, 1.1, notReproducedBefore},
		{"within a range", between, 2.5, reproducedBefore},
		{"a quarter below a range", between, 1.5, reproducedBefore},
		{"below that", between, 1.4, directionBefore},
		{"twice above a range", between, 6, reproducedBefore},
		{"three points", part, 96, reproducedBefore},
		{"four points", part, 95, directionBefore},
		{"hardly any", part, 89, notReproducedBefore},
		{"less, which is better", few, 4, reproducedBefore},
		{"more than twice better", few, 3.9, directionBefore},
		{"more, which is worse", few, 12, directionBefore},
		{"a baseline", other, 50, reproducedBefore},
		{"another baseline", other, 96, directionBefore},
		{"about the same", near, 1.05, reproducedBefore},
		{"not quite the same", near, 1.1, directionBefore},
		{"another", near, 1.3, notReproducedBefore},
		{"an order", first, 7, reproducedBefore},
		{"the other order", first, 0.9, notReproducedBefore},
		{"a tolerance of its own", exact, 1.89, directionBefore},
	} {
		if v := c.claim.judge(c.v); v != c.want {
			t.Errorf("%s: %v of %g is %s, want %s", c.name, c.claim.Paper, c.v, namesBefore[v], namesBefore[c.want])
		}
	}
}

// TestBeforeTake: the verdict is that of the worst point, or of the extreme or mean over points of each seed.
func TestBeforeTake(t *testing.T) {
	points := [][]float64{{2, 2.2}, {0.9, 0.8}}
	for take, want := range map[string]string{"": "not reproduced", "most": "reproduced", "least": "not reproduced", "mean": "direction only"} {
		c := before{scenario.Before{Take: take, Paper: []float64{2}}, true}
		if got := c.judgeAll(points); got != want {
			t.Errorf("take %q: %s, want %s", take, got, want)
		}
	}
}
