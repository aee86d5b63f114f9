package sim

import (
	"fmt"
	"slices"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
)

// eventTimer runs Config.Events.
type eventTimer struct {
	s     *Simulation
	left  []Event
	timer engine.Meeting
}

func (e *eventTimer) start(s *Simulation) {
	e.s, e.left = s, slices.Clone(s.cfg.Events)
	slices.SortStableFunc(e.left, func(a, b Event) int { return int(min(max(a.At-b.At, -1), 1)) })
	e.timer.Init(s.clock, e)
	e.next()
}

func (e *eventTimer) next() {
	if len(e.left) > 0 {
		e.timer.Set(e.left[0].At)
	}
}

// Handle implements engine.Handler.
func (e *eventTimer) Handle(engine.Time, int32) {
	do := e.left[0].Do
	e.left = e.left[1:]
	e.s.clock.Sync()
	do(e.s.cluster.Network())
	if err := e.s.cluster.Network().Undivided(); err != nil {
		e.s.runner.Fail(err)
	}
	e.next()
}

// sampler samples the network at regular intervals.
type sampler struct {
	s      *Simulation
	timer  engine.Meeting
	queues []queue
	// Totals at the previous sample.
	placed, pauses uint64
	paused         engine.Time
}

// queue is a sampled queue: that of a switch before a link.
type queue struct {
	link string
	sw   *fabric.Switch
	port int
}

func (p *sampler) start(s *Simulation) {
	p.s = s
	p.timer.Init(s.clock, p)
	if s.cfg.Sample > 0 {
		p.timer.Set(s.cfg.Sample)
	}
}

// find finds the queues before the named links.
func (p *sampler) find(n *fabric.Network, links []string) error {
	for _, name := range links {
		found := false
		for i := range n.Switches() {
			sw := &n.Switches()[i]
			for k := range sw.Ports() {
				if _, out, _ := sw.Port(k); out.Name == name || fabric.Ends(out.Name) == name {
					p.queues, found = append(p.queues, queue{out.Name, sw, k}), true
				}
			}
		}
		if !found {
			return fmt.Errorf("no switch has a link %q%s", name, suggest.Hint(name, queues(n)))
		}
	}
	return nil
}

// queues returns the names of the links that switches send to.
func queues(n *fabric.Network) (names []string) {
	for i := range n.Switches() {
		sw := &n.Switches()[i]
		for k := range sw.Ports() {
			_, out, _ := sw.Port(k)
			names = append(names, fabric.Ends(out.Name))
		}
	}
	return names
}

// pending returns the number of the sampler's own pending timers.
func (p *sampler) pending() int {
	if p.timer.Pending() {
		return 1
	}
	return 0
}

// Handle implements engine.Handler.
func (p *sampler) Handle(now engine.Time, _ int32) {
	p.s.clock.Sync()
	n, r := p.s.cluster.Network(), &p.s.result
	placed, pauses, paused := p.s.cluster.Placed(), uint64(0), engine.Time(0)
	for i := range n.Links() {
		l := &n.Links()[i]
		pauses += l.Stats.Pauses
		paused += l.PausedAt(now)
	}
	x := result.Sample{At: now, Goodput: float64(placed-p.placed) * 8 / p.s.cfg.Sample.Seconds(),
		Pauses: pauses - p.pauses, Paused: paused - p.paused}
	p.placed, p.pauses, p.paused = placed, pauses, paused
	x.PausedLinks, x.PauseTrees, x.PauseDepth = n.PauseTrees()
	for i := range n.Switches() {
		sw := &n.Switches()[i]
		x.Queued += sw.Queued()
		for k := range sw.Ports() {
			_, _, queued := sw.Port(k)
			x.LongestQueue = max(x.LongestQueue, queued)
		}
	}
	for _, q := range p.queues {
		_, _, queued := q.sw.Port(q.port)
		r.Queues = append(r.Queues, result.Queue{At: now, Link: q.link, Bytes: queued})
	}
	r.Samples = append(r.Samples, x)
	if p.s.clock.Pending() > 0 {
		p.timer.Set(now + p.s.cfg.Sample)
	}
}

// collectives returns the completed collective operations.
func (s *Simulation) collectives() (out []result.Collective) {
	job := 0
	for _, a := range s.cfg.Apps {
		op, ok := a.(workload.Reporter)
		if !ok {
			continue
		}
		rep := op.Report()
		for _, x := range rep.Ended {
			out = append(out, result.Collective{Workload: rep.Kind, Job: job, Ranks: rep.Ranks, Bytes: rep.Bytes,
				Start: x.Start, Took: x.Took, Bus: float64(rep.Sent) * 8 / x.Took.Seconds()})
		}
		job++
	}
	return out
}

// classes returns the traffic classes, if messages have others than class 0.
func (s *Simulation) classes() (out []result.Class) {
	n, others := s.cluster.Network(), false
	for class := range uint8(fabric.Classes) {
		c := s.result.OfClass(class)
		c.Lost, c.Pauses = n.Lost(class), n.Pauses(class)
		if c.Messages > 0 || c.Lost > 0 || c.Pauses > 0 {
			out = append(out, c)
		}
		others = others || class > 0 && c.Messages > 0
	}
	if !others {
		return nil
	}
	return out
}

// finish records the counters of links and switches.
func (s *Simulation) finish() {
	r, n, now := &s.result, s.cluster.Network(), s.clock.Now()
	r.Ended, r.Unfinished, r.Failed = now, s.runner.Running(), s.runner.Failed()
	c := s.cluster.Counters()
	r.Retransmitted, r.Timeouts, r.Duplicates = c.RetransmittedPackets, c.LocalAckTimeoutErr, c.DuplicateRequest
	if s.inside != nil {
		s.inside.Finish(now.Mono())
		r.Inside = s.inside.Result()
	}
	r.Collectives, r.Classes = s.collectives(), s.classes()
	r.Events, r.Stray, r.Late = s.clock.Fired()-s.repeated, s.cluster.Stray(), s.runner.Late()
	r.Drops = map[string]uint64{}
	for why := range fabric.Reasons {
		if d := n.Drops(why); d > 0 {
			r.Drops[why.String()] = d
		}
	}
	for i := range n.Links() {
		l := &n.Links()[i]
		p := result.Port{Link: l.Name, Packets: l.Stats.Packets, Bytes: l.Stats.Bytes, Lost: l.Stats.Lost,
			Pauses: l.Stats.Pauses, Paused: l.PausedAt(now)}
		r.Transmissions += p.Packets
		r.Pauses += p.Pauses
		r.Paused += p.Paused
		r.Ports = append(r.Ports, p)
	}
	index := map[string]int{}
	for i := range r.Ports {
		index[r.Ports[i].Link] = i
	}
	for i := range n.Switches() {
		sw := &n.Switches()[i]
		for k := range sw.Ports() {
			st, out, _ := sw.Port(k)
			p := &r.Ports[index[out.Name]]
			p.Peak, p.Marked = max(p.Peak, st.Peak), p.Marked+st.Marked
			r.Marked += st.Marked
			r.Peak = max(r.Peak, st.Peak)
		}
	}
}
