package papers

import (
	"math"
	"slices"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
)

// middle returns the middle of a number's interval; 0 if the interval has no end.
func (p *probe) middle(n *scenario.Number) engine.Time {
	end := engine.Time(n.End)
	if end == 0 {
		end = p.until
	}
	if end <= engine.Time(n.Begin) {
		return 0
	}
	return engine.Time(n.Begin) + (end-engine.Time(n.Begin))/2
}

// lookInTheMiddle takes a snapshot in the middle of a number's interval.
func (p *probe) lookInTheMiddle(c *sim.Config, n *scenario.Number) {
	if at := p.middle(n); at > 0 {
		c.Events = append(c.Events, sim.Event{At: at, Do: func(net *fabric.Network) { p.half[n.Name] = p.look(net, n) }})
	}
}

// halves returns, by number, the value of the second half of its measurement over that of the first one: 1 if the
// network was stationary. It has numbers of flows, whose halves are by the time of their begin, of requests, and of
// what is placed or on links.
func (p *probe) halves(r *result.Result) map[string]float64 {
	out := map[string]float64{}
	for i := range p.numbers {
		n := &p.numbers[i]
		first, second := math.NaN(), math.NaN()
		switch {
		case slices.Contains(ofFlows, n.Of):
			w := n.Within
			if len(w) == 0 {
				w = []float64{0, 1}
			}
			a, b := *n, *n
			if a.Within = w; len(flows(r, &a)) < 2 {
				continue
			}
			a.Within, b.Within = []float64{w[0], (w[0] + w[1]) / 2}, []float64{(w[0] + w[1]) / 2, w[1]}
			first, second = pick(n.Take, flows(r, &a)), pick(n.Take, flows(r, &b))
		case n.Of == "requests" && p.middle(n) > 0:
			a, b := *n, *n
			a.End, b.Begin = p.middle(n), p.middle(n)
			first, second = p.ofCalls(&a, r), p.ofCalls(&b, r)
		case slices.Contains(timed, n.Of):
			if h, ok := p.half[n.Name]; ok {
				first, second = rate(n, p.begin[n.Name], h), rate(n, h, p.ended(n))
			}
		}
		if v := second / first; v > 0 && !math.IsInf(v, 0) {
			out[n.Name] = v
		}
	}
	return out
}
