package papers

import (
	"math"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/flor"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
)

// TestOfCalls: numbers cover the named clients, servers and periods.
func TestOfCalls(t *testing.T) {
	us := engine.Microsecond
	a, b, idle := flor.Pair{Client: 0, Server: 2}, flor.Pair{Client: 1, Server: 2}, flor.Pair{Client: 3, Server: 2}
	c := &flor.Calls{Pairs: []flor.Pair{a, b, idle}, Request: 1250, RTTs: []flor.RTT{{At: 3 * us, Took: 9 * us}, {At: 8 * us, Took: 7 * us}}}
	for at, p := range []flor.Pair{b, a, a, b, a, a, a, a, a} {
		c.Answers = append(c.Answers, flor.Answer{At: engine.Time(at+1) * us, Took: engine.Time(at) * us, Pair: p})
	}
	p := &probe{calls: callsProbe{apps: []*flor.Calls{c}}}
	r := &result.Result{Ended: 10 * us}
	from := 2 * us
	for name, x := range map[string]struct {
		n    scenario.Number
		want float64
	}{
		// Each request is 10 kb, and there are 8 us: 6 and 1.
		"mean of both":     {scenario.Number{Of: "requests", Take: "mean", Clients: []int{0, 1}, Begin: from}, 3.5 * 1.25},
		"who has nothing":  {scenario.Number{Of: "requests", Take: "min", Begin: from}, 0},
		"sum":              {scenario.Number{Of: "requests", Take: "sum", Begin: from}, 7 * 1.25},
		"two ranges":       {scenario.Number{Of: "requests", Take: "mean", Clients: []int{0, 0, 3, 3}, Begin: from}, 3 * 1.25},
		"of another one":   {scenario.Number{Of: "requests", Take: "sum", Servers: []int{1, 1}, Begin: from}, 0},
		"until":            {scenario.Number{Of: "requests", Take: "sum", Begin: from, End: 4 * us}, 10},
		"gap":              {scenario.Number{Of: "gap", Clients: []int{1, 1}, Rivals: []int{0, 0}, Begin: from}, 500},
		"swing":            {scenario.Number{Of: "swing", Clients: []int{0, 0}, Begin: from, End: 6 * us, Every: 2 * us}, 200. / 3},
		"swing, cut short": {scenario.Number{Of: "swing", Clients: []int{0, 0}, Begin: from, End: 50 * us, Every: 2 * us}, 200. / 3},
		"calls":            {scenario.Number{Of: "calls", Begin: from}, 875},
		"call":             {scenario.Number{Of: "call", Take: "max", Begin: from, Clients: []int{1, 1}}, 3},
		"rtt":              {scenario.Number{Of: "rtt", Take: "mean", Begin: 4 * us}, 7},
	} {
		if err := checkCalls(&x.n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := p.ofCalls(&x.n, r); math.Abs(got-x.want) > 1e-6 {
			t.Errorf("%s: %v, not %v", name, got, x.want)
		}
	}
	for _, n := range []scenario.Number{{Of: "requests", Take: "mean", Clients: []int{3}}, {Of: "gap"}, {Of: "swing"}} {
		if checkCalls(&n) == nil {
			t.Errorf("%+v is taken", n)
		}
	}
}
