package papers

import (
	"errors"
	"math"
	"slices"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/flor"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
)

// ofCalls are the quantities of workloads of kind calls, measured during an interval.
var ofCalls = []string{"requests", "gap", "swing", "calls", "call", "rtt", "switched", "sequence"}

// checkCalls validates a number of calls.
func checkCalls(n *scenario.Number) error {
	for _, r := range [][]int{n.Clients, n.Servers, n.Rivals} {
		if len(r)%2 != 0 {
			return errors.New("clients, servers and rivals must be pairs of first and last hosts, such as [0, 3, 8, 11]")
		}
	}
	if n.Of == "gap" && len(n.Rivals) == 0 || n.Of == "swing" && (n.Every == 0 || n.End == 0) {
		return errors.New("gap requires rivals, swing requires every and end")
	}
	return nil
}

// callsProbe measures the calls of a simulation.
type callsProbe struct {
	apps     []*flor.Calls
	sequence map[string]uint64 // at the beginning of each number's interval
}

// attachCalls attaches a probe to the calls of c.
func (p *probe) attachCalls(c *sim.Config) {
	p.calls.sequence = map[string]uint64{}
	for _, a := range c.Apps {
		if f, ok := a.(*flor.Calls); ok {
			p.calls.apps = append(p.calls.apps, f)
		}
	}
	for _, n := range p.numbers {
		if n.Of == "sequence" {
			c.Events = append(c.Events, sim.Event{At: engine.Time(n.Begin), Do: func(*fabric.Network) {
				p.calls.sequence[n.Name] = p.sim.Cluster().Counters().OutOfSequence
			}})
		}
	}
}

// ofCalls returns a number of calls.
func (p *probe) ofCalls(n *scenario.Number, r *result.Result) float64 {
	from, to := engine.Time(n.Begin), engine.Time(n.End)
	if to == 0 || to > r.Ended {
		to = r.Ended
	}
	switch n.Of {
	case "requests":
		if n.Take == "sum" {
			return sum(p.requests(n.Clients, n.Servers, from, to))
		}
		return pick(n.Take, p.requests(n.Clients, n.Servers, from, to))
	case "gap":
		a, b := pick("mean", p.requests(n.Clients, n.Servers, from, to)), pick("mean", p.requests(n.Rivals, n.Servers, from, to))
		return 100 * math.Abs(a-b) / min(a, b)
	case "swing":
		return p.swing(n, from, to)
	case "calls":
		return float64(len(p.times(n, from, to))) / (to - from).Seconds() / 1e3
	case "call":
		return pick(n.Take, p.times(n, from, to))
	case "rtt":
		return pick(n.Take, p.rtts(from, to))
	case "switched":
		return pick(n.Take, p.switched())
	case "sequence":
		return float64(p.sim.Cluster().Counters().OutOfSequence - p.calls.sequence[n.Name])
	}
	return math.NaN()
}

// within reports whether a host is in one of the ranges; no ranges mean all hosts.
func within(r []int, host int) bool {
	for i := 0; i < len(r); i += 2 {
		if host >= r[i] && host <= r[i+1] {
			return true
		}
	}
	return len(r) == 0
}

// answers calls do for each answer to these clients from these servers, after from until to.
func (p *probe) answers(clients, servers []int, from, to engine.Time, do func(c *flor.Calls, a *flor.Answer)) {
	for _, c := range p.calls.apps {
		for i := range c.Answers {
			if a := &c.Answers[i]; a.At > from && a.At <= to && within(clients, a.Pair.Client) && within(servers, a.Pair.Server) {
				do(c, a)
			}
		}
	}
}

// requests returns the rates of clients.
func (p *probe) requests(clients, servers []int, from, to engine.Time) (rates []float64) {
	bytes := map[int]uint64{}
	for _, c := range p.calls.apps {
		for _, pair := range c.Pairs {
			if within(clients, pair.Client) && within(servers, pair.Server) {
				bytes[pair.Client] += 0 // clients without answers count, too
			}
		}
	}
	p.answers(clients, servers, from, to, func(c *flor.Calls, a *flor.Answer) { bytes[a.Pair.Client] += uint64(c.Request) })
	for _, v := range bytes {
		rates = append(rates, float64(v)*8/(to-from).Seconds()/1e9)
	}
	slices.Sort(rates)
	return rates
}

// swing compares intervals.
func (p *probe) swing(n *scenario.Number, from, to engine.Time) float64 {
	var rates []float64
	for at := from; at+engine.Time(n.Every) <= to; at += engine.Time(n.Every) {
		rates = append(rates, pick("mean", p.requests(n.Clients, n.Servers, at, at+engine.Time(n.Every))))
	}
	if len(rates) == 0 {
		return math.NaN()
	}
	return 100 * (slices.Max(rates) - slices.Min(rates)) / mean(rates)
}

// times returns the durations of calls.
func (p *probe) times(n *scenario.Number, from, to engine.Time) (all []float64) {
	p.answers(n.Clients, n.Servers, from, to, func(_ *flor.Calls, a *flor.Answer) { all = append(all, a.Took.Seconds()*1e6) })
	return all
}

func sum(values []float64) (s float64) {
	for _, v := range values {
		s += v
	}
	return s
}

func (p *probe) rtts(from, to engine.Time) (all []float64) {
	for _, c := range p.calls.apps {
		for _, r := range c.RTTs {
			if r.At > from && r.At <= to {
				all = append(all, r.Took.Seconds()*1e6)
			}
		}
	}
	return all
}

func (p *probe) switched() (all []float64) {
	for _, c := range p.calls.apps {
		for _, t := range c.Switched() {
			all = append(all, t.Seconds()*1e6)
		}
	}
	return all
}
