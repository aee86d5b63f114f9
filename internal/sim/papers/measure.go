package papers

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/inside"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/workload"
)

// Quantities describes what a number can measure. The first group has many values per run; Take selects one of
// them.
var Quantities = map[string]string{
	"fct":      "us, of each flow",
	"slowdown": "of each flow",
	"share":    "percent of the ideal rate, of each flow",
	"rate":     "Gb/s, of each flow",
	"query":    "us, of each set of flows to a host that began at the same instant",
	"placed":   "Gb/s of payload, of each active connection from begin to end",
	"received": "Gb/s of payload, of each of the servers with a connection from begin to end",
	"total":    "Gb/s of payload, of all connections from begin to end",
	"link":     "Gb/s of frames, sum over links from begin to end",
	"marking":  "percent of the packets on links that switches marked, from begin to end",
	"queue":    "KB before a link, of each sample from begin to end",

	"collective": "us, of each collective operation",
	"bus":        "Gb/s of bus bandwidth as nccl-tests defines it, of each collective operation",

	"goodput":    "Gb/s of payload, of all completed flows",
	"completion": "us, until the last flow ended",
	"dropped":    "percent of the packets with data that were sent",
	"resent":     "percent of the packets with data that were sent",
	"messages":   "that were completed",
	"timeouts":   "",
	"pauses":     "",
	"paused":     "percent of the time, mean of links",
	"unfinished": "percent of the flows",
	"marked":     "packets",

	"degree":    "packets, out-of-order degree of each packet received after begin (MP-RDMA 3.3)",
	"state":     "bytes of the receiver's tracking state of a connection",
	"state-nic": "the same, sum over all connections of a NIC",
	"state-way": "maximum bytes of the receiver's tracking state of the requests of a connection",
	"bitmaps":   "bytes of all bitmaps of a NIC, without their index",
	"pool":      "maximum percentage of MELO's bits pool",
	"early":     "packets of synchronise operations that arrived too early, with a bitmap of L = 64",
	"copied":    "percent of the payload that arrived ahead of a gap",
	"copying":   "payload that arrived ahead of a gap, in percent of the payload at the flows' ideal rate during the same time",

	"requests": "Gb/s of answered requests, of each client",
	"gap":      "difference of the answered requests of clients and rivals, in percent of the lesser",
	"swing":    "range of the clients' answered requests over intervals of time, in percent of the mean",
	"call":     "us, from posting a call to its answer",
	"rtt":      "us, each round trip that Flor measured at clients",
	"switched": "us, from the error of a queue pair to the first completed request after it (Flor 6)",
	"calls":    "thousand calls per second, of all clients",
	"sequence": "packets beyond the expected PSN",
}

// ofFlows are the quantities that flows() returns for each completed flow.
var ofFlows = []string{"fct", "slowdown", "share", "rate"}

// ofMany are the quantities that need Take.
var ofMany = []string{"fct", "slowdown", "share", "rate", "query", "queue", "placed", "received", "collective", "bus", "requests", "call", "rtt", "switched"}

func checkNumber(n *scenario.Number) error {
	_, known := Quantities[n.Of]
	taken := []string{"mean", "a percentile such as p99", "max", "min", "jain", "unfair", "deviation"}
	if n.Of == "requests" {
		taken = append(taken, "sum")
	}
	switch {
	case n.Name == "":
		return fmt.Errorf("it has no name")
	case !known:
		return suggest.OneOf(n.Of, slices.Sorted(maps.Keys(Quantities)))
	case slices.Contains(ofMany, n.Of) && !slices.Contains(taken, n.Take) && percentile(n.Take) == 0:
		return fmt.Errorf("take %w", suggest.OneOf(n.Take, taken))
	case slices.Contains([]string{"link", "marking", "queue"}, n.Of) && n.Links == "":
		return fmt.Errorf("links is missing")
	case len(n.Within) > 0 && !slices.Contains(ofFlows, n.Of):
		return fmt.Errorf("within applies to quantities of flows only: %v", ofFlows)
	case len(n.Within) > 0 && (len(n.Within) != 2 || n.Within[0] < 0 || n.Within[0] >= n.Within[1] || n.Within[1] > 1):
		return fmt.Errorf("within %v: expected two numbers from 0 to 1 in ascending order", n.Within)
	}
	return checkCalls(n)
}

// probe measures a simulation.
type probe struct {
	numbers []scenario.Number
	until   engine.Time
	mtu     int
	sim     *sim.Simulation
	conns   []receiver
	watch   bool            // fill conns
	latest  map[*nic.QP]int // index of the queue pair's current connection in conns
	begin   map[string]snapshot
	end     map[string]snapshot
	half    map[string]snapshot
	inside  *inside.Inside
	calls   callsProbe
}

// receiver is the receiving end of a connection.
type receiver struct {
	q      *nic.QP
	before uint64 // bytes that earlier connections have placed by the same queue pair
	over   bool   // the queue pair belongs to another connection now
	placed uint64 // if over: placed bytes
}

func (r *receiver) sum() uint64 {
	if r.over {
		return r.placed
	}
	return r.q.Placed() - r.before
}

// snapshot has the counters at an instant.
type snapshot struct {
	at    engine.Time
	total uint64   // bytes placed
	conns []placed // connections
	links uint64
	// Packets on links, and marked ones.
	packets, marked uint64
}

var (
	// timed are quantities of an interval; traced are derived from events of queue pairs.
	timed  = []string{"placed", "received", "total", "link", "marking"}
	traced = []string{"degree", "state", "state-nic", "state-way", "bitmaps", "pool", "copied", "copying", "early"}
)

// attach attaches a probe for numbers to the simulation of c.
func attach(c *sim.Config, numbers []scenario.Number) *probe {
	p := &probe{numbers: numbers, until: c.Until, mtu: max(c.MTU, 1), begin: map[string]snapshot{}, end: map[string]snapshot{}, half: map[string]snapshot{}}
	if c.MTU == 0 {
		p.mtu = 1000
	}
	for _, n := range numbers {
		if slices.Contains(traced, n.Of) && p.inside == nil {
			p.inside = inside.New(c.Hosts())
		}
		if n.Of == "queue" && !slices.Contains(c.Queues, n.Links) {
			c.Queues = append(c.Queues, n.Links)
		}
		if n.Of == "degree" && n.Begin > 0 {
			c.Events = append(c.Events, sim.Event{At: engine.Time(n.Begin), Do: func(*fabric.Network) { p.inside.ForgetDegrees() }})
		}
		if !slices.Contains(timed, n.Of) {
			continue
		}
		p.watch = p.watch || slices.Contains(ofConnections, n.Of)
		p.lookInTheMiddle(c, &n)
		c.Events = append(c.Events, sim.Event{At: engine.Time(n.Begin), Do: func(net *fabric.Network) { p.begin[n.Name] = p.look(net, &n) }})
		if n.End > 0 {
			c.Events = append(c.Events, sim.Event{At: engine.Time(n.End), Do: func(net *fabric.Network) { p.end[n.Name] = p.look(net, &n) }})
		}
	}
	if p.watch || p.inside != nil {
		c.Opened = p.opened
	}
	p.attachCalls(c)
	return p
}

func (p *probe) opened(first, second *nic.QP, f *workload.Flow) {
	to := second
	if f.Verb == workload.Read {
		to = first
	}
	if p.watch {
		p.receives(to)
	}
	if p.inside != nil {
		p.inside.Watch(to, 0)
	}
}

// receives records a connection. Its queue pair may have belonged to an earlier one, which has ended.
func (p *probe) receives(q *nic.QP) {
	if old, known := p.latest[q]; known {
		r := &p.conns[old]
		r.placed, r.over = r.sum(), true
	}
	if p.latest == nil {
		p.latest = map[*nic.QP]int{}
	}
	p.latest[q] = len(p.conns)
	p.conns = append(p.conns, receiver{q: q, before: q.Placed()})
}

func (p *probe) look(net *fabric.Network, n *scenario.Number) snapshot {
	s := snapshot{at: p.sim.Cluster().Engine().Now(), total: p.sim.Cluster().Placed()}
	if slices.Contains(ofConnections, n.Of) {
		s.conns = p.placedBy(n)
	}
	if n.Links != "" {
		for i := range net.Links() {
			if l := &net.Links()[i]; strings.HasPrefix(l.Name, n.Links) {
				s.links += l.Stats.Bytes
				s.packets += l.Stats.Packets
			}
		}
	}
	if n.Of == "marking" {
		s.marked = markedOn(net, n.Links)
	}
	return s
}

// markedOn returns the packets that switches marked before links whose names begin with prefix.
func markedOn(net *fabric.Network, prefix string) (marked uint64) {
	for i := range net.Switches() {
		s := &net.Switches()[i]
		for k := range s.Ports() {
			if st, out, _ := s.Port(k); strings.HasPrefix(out.Name, prefix) {
				marked += st.Marked
			}
		}
	}
	return marked
}

// measure returns the numbers of a completed run. It omits undefined numbers, such as the mean of no values.
func (p *probe) measure(r *result.Result) map[string]float64 {
	out := map[string]float64{}
	for i := range p.numbers {
		n := &p.numbers[i]
		if v := p.number(n, r); !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[n.Name] = v
		}
	}
	return out
}

func (p *probe) number(n *scenario.Number, r *result.Result) float64 {
	switch {
	case slices.Contains(ofCalls, n.Of):
		return p.ofCalls(n, r)
	case slices.Contains(timed, n.Of):
		return p.timed(n)
	case n.Of == "copying":
		return 100 * p.inside.Ahead() * shareOfIdeal(r)
	case slices.Contains(traced, n.Of):
		return ofInside(p.inside, n, r.Ended)
	case slices.Contains(ofMany, n.Of):
		return pick(n.Take, many(n, r))
	}
	return p.whole(n, r)
}

// many returns the values of which a number takes one.
func many(n *scenario.Number, r *result.Result) []float64 {
	switch n.Of {
	case "query":
		return queries(r, n)
	case "collective", "bus":
		return collectives(r, n)
	case "queue":
		return queued(r, n)
	}
	return flows(r, n)
}

// values returns the values that a number is computed from: many, or one.
func (p *probe) values(n *scenario.Number, r *result.Result) []float64 {
	from, to := engine.Time(n.Begin), engine.Time(n.End)
	if to == 0 || to > r.Ended {
		to = r.Ended
	}
	switch n.Of {
	case "requests":
		return p.requests(n.Clients, n.Servers, from, to)
	case "call":
		return p.times(n, from, to)
	case "rtt":
		return p.rtts(from, to)
	case "switched":
		return p.switched()
	case "placed", "received":
		b, e := p.begin[n.Name], p.ended(n)
		return rates(n, b.conns, e.conns, (e.at - b.at).Seconds())
	}
	if slices.Contains(ofMany, n.Of) {
		return many(n, r)
	}
	return []float64{p.number(n, r)}
}

// queued returns the samples of a queue.
func queued(r *result.Result, n *scenario.Number) (values []float64) {
	for _, q := range r.Queues {
		if q.Link == n.Links && q.At > engine.Time(n.Begin) && (n.End == 0 || q.At <= engine.Time(n.End)) {
			values = append(values, float64(q.Bytes)/1e3)
		}
	}
	return values
}

// whole returns numbers with one value per run.
func (p *probe) whole(n *scenario.Number, r *result.Result) float64 {
	switch n.Of {
	case "goodput":
		return r.Goodput() / 1e9
	case "completion":
		return completion(r, n)
	case "dropped":
		lost := uint64(0)
		for _, d := range r.Drops {
			lost += d
		}
		return 100 * float64(lost) / p.sent(r)
	case "resent":
		return 100 * float64(r.Retransmitted) / p.sent(r)
	case "messages":
		return float64(len(r.Flows))
	case "timeouts":
		return float64(r.Timeouts)
	case "pauses":
		return float64(r.Pauses)
	case "paused":
		return paused(r, n.Links)
	case "unfinished":
		return unfinished(r)
	case "marked":
		return float64(r.Marked)
	}
	return math.NaN()
}

// unfinished returns the percentage of flows that did not finish or failed.
func unfinished(r *result.Result) float64 {
	n := r.Unfinished + r.Failed
	return 100 * float64(n) / float64(max(n+len(r.Flows), 1))
}

// sent returns the number of data packets of completed flows plus all retransmissions.
func (p *probe) sent(r *result.Result) float64 {
	n := float64(r.Retransmitted)
	for i := range r.Flows {
		n += math.Ceil(float64(r.Flows[i].Bytes) / float64(p.mtu))
	}
	return max(n, 1)
}

func (p *probe) timed(n *scenario.Number) float64 {
	b, ok := p.begin[n.Name]
	if !ok {
		return math.NaN()
	}
	return rate(n, b, p.ended(n))
}

// ended returns the snapshot at the end of a number's interval.
func (p *probe) ended(n *scenario.Number) snapshot {
	if e, ok := p.end[n.Name]; ok {
		return e
	}
	return p.look(p.sim.Cluster().Network(), n)
}

// rate returns a number of the interval between two snapshots.
func rate(n *scenario.Number, b, e snapshot) float64 {
	seconds := (e.at - b.at).Seconds()
	switch n.Of {
	case "link":
		return float64(e.links-b.links) * 8 / seconds / 1e9
	case "marking":
		return 100 * float64(e.marked-b.marked) / float64(e.packets-b.packets)
	case "total":
		return float64(e.total-b.total) * 8 / seconds / 1e9
	}
	return pick(n.Take, rates(n, b.conns, e.conns, seconds))
}

// wanted reports whether a number includes flows like f.
func wanted(n *scenario.Number, f *result.Flow) bool {
	b := quantity.Bytes(f.Bytes)
	return b > n.From && (n.To == 0 || b <= n.To) && (n.Bytes == 0 || b == n.Bytes) || n.From == 0 && b == 0
}

func flows(r *result.Result, n *scenario.Number) (values []float64) {
	from, to := stretch(r, n)
	for i := range r.Flows {
		f := &r.Flows[i]
		if !wanted(n, f) || f.FCT <= 0 || f.Start < from || f.Start > to {
			continue
		}
		switch n.Of {
		case "fct":
			values = append(values, f.FCT.Seconds()*1e6)
		case "slowdown":
			values = append(values, f.Slowdown)
		case "share":
			values = append(values, 100*f.Ideal.Seconds()/f.FCT.Seconds())
		case "rate":
			values = append(values, float64(f.Bytes)*8/f.FCT.Seconds()/1e9)
		}
	}
	return values
}

// stretch returns the interval in which the flows of a number begin.
func stretch(r *result.Result, n *scenario.Number) (from, to engine.Time) {
	if len(n.Within) == 0 {
		return 0, engine.Never
	}
	last := engine.Time(0)
	for i := range r.Flows {
		last = max(last, r.Flows[i].Start)
	}
	return engine.Time(n.Within[0] * float64(last)), engine.Time(n.Within[1] * float64(last))
}

// shareOfIdeal returns the flows' share of their ideal rate.
func shareOfIdeal(r *result.Result) float64 {
	ideal, took := 0.0, 0.0
	for i := range r.Flows {
		ideal, took = ideal+r.Flows[i].Ideal.Seconds(), took+r.Flows[i].FCT.Seconds()
	}
	return ideal / took
}

// queries returns the durations of sets of flows.
func queries(r *result.Result, n *scenario.Number) (values []float64) {
	type query struct {
		start engine.Time
		dst   int
	}
	took := map[query]engine.Time{}
	for i := range r.Flows {
		if f := &r.Flows[i]; wanted(n, f) {
			q := query{f.Start, f.Dst}
			took[q] = max(took[q], f.FCT)
		}
	}
	for _, t := range took {
		values = append(values, t.Seconds()*1e6)
	}
	slices.Sort(values)
	return values
}

func completion(r *result.Result, n *scenario.Number) float64 {
	first, last := engine.Never, engine.Time(0)
	for i := range r.Flows {
		if f := &r.Flows[i]; wanted(n, f) {
			first, last = min(first, f.Start), max(last, f.Start+f.FCT)
		}
	}
	if last <= first {
		return math.NaN()
	}
	return (last - first).Seconds() * 1e6
}

// paused returns the percentage of time for which links were paused: links from hosts, from switches, or all.
func paused(r *result.Result, of string) float64 {
	sum, n := 0.0, 0
	for i := range r.Ports {
		from, _, _ := strings.Cut(r.Ports[i].Link, "-")
		host := len(from) > 1 && from[0] == 'h' && from[1] >= '0' && from[1] <= '9'
		if of == "host" && !host || of == "switch" && host {
			continue
		}
		sum += r.Ports[i].Paused.Seconds()
		n++
	}
	return 100 * sum / float64(n) / r.Ended.Seconds()
}
