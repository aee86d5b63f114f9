package engine

import (
	"cmp"
	"slices"
	"time"

	"roced.io/roced/verbs"
)

// post posts messages of the started flows.
func (q *nicPair) post() {
	for q.state == pairUp && len(q.posted) < nicDepth {
		f := q.pick()
		if f == nil {
			return
		}
		err := q.qp.PostSend(&verbs.SendWR{Opcode: nicOpcodes[f.cfg.Verb], Flags: verbs.SendSignaled, Imm: f.cfg.Immediate,
			SGEs: []verbs.SGE{q.port.mr.SGE(0, int(f.cfg.Size))}, RemoteAddr: q.far.va, RKey: q.far.rkey})
		if err != nil {
			q.disconnect(pairFailed, err.Error())
			return
		}
		f.sent++
		q.posted = append(q.posted, nicMessage{f, q.port.ctx.Now()})
	}
}

// pick returns the started flow whose turn it is.
func (q *nicPair) pick() *nicFlow {
	for range q.flows {
		q.turn = (q.turn + 1) % len(q.flows)
		if f := q.flows[q.turn]; f.state == Started {
			return f
		}
	}
	return nil
}

// poll handles the completions of a port.
func (n *nics) poll(p *nic) {
	wcs := make([]verbs.WC, 64)
	for {
		k, err := p.cq.Wait(n.ctx, wcs)
		if err != nil {
			n.failed(p, err)
			return
		}
		n.mu.Lock()
		for _, w := range wcs[:k] {
			if q := p.byQPN[w.QPN]; q != nil {
				q.completed(&w)
			}
		}
		n.mu.Unlock()
	}
}

// completed handles a completion.
func (q *nicPair) completed(w *verbs.WC) {
	switch {
	case w.Status != verbs.StatusSuccess:
		q.broken(w.Status.String())
	case w.Opcode >= verbs.WCRecv:
		if err := q.receive(); err != nil {
			q.disconnect(pairFailed, err.Error())
		}
	case len(q.posted) > 0:
		m := q.posted[0]
		q.posted = slices.Delete(q.posted, 0, 1)
		m.flow.done++
		m.flow.completion = time.Duration(w.Time - max(m.at, q.last))
		q.last = w.Time
		q.post()
	}
}

// broken counts the messages in progress as failed, and stops the flows.
func (q *nicPair) broken(why string) {
	for _, m := range q.posted {
		m.flow.fails++
		m.flow.lastErr = cmp.Or(m.flow.lastErr, why)
	}
	q.posted = nil
	for _, f := range q.flows {
		f.state = Stopped
	}
	q.disconnect(pairFailed, "a message failed: "+why)
}

// pace sets the rate of the data that q sends: its share of the rate of its groups.
func (n *nics) pace(q *nicPair) {
	if q.state != pairUp {
		return
	}
	sum, limited, started := 0.0, false, false
	for _, f := range n.flows {
		sender := f.pair
		if f.cfg.Verb == Read && !f.cfg.Far {
			sender = n.pairs[f.pair.cfg.Remote]
		}
		if sender != q || f.state != Started || f.cfg.Far && f.cfg.Verb != Read {
			continue
		}
		started = true
		if f.cfg.LineRate > 0 {
			limited = true
			sum += wireRate(f.cfg.LineRate*float64(q.port.speed)/float64(f.mates()), int(f.cfg.Size), q.peer.cfg.PathMTU, headerLen(q.peer.addr.Is4(), false))
		}
	}
	if !started {
		return // messages in progress keep their rate
	}
	if err := q.qp.Modify(verbs.QPAttr{RateLimit: rateLimit(sum, limited)}, verbs.AttrRateLimit); err != nil {
		q.disconnect(pairFailed, err.Error())
	}
}

// mates returns the number of started flows that share the rate of f, with f.
func (f *nicFlow) mates() (count int) {
	for _, o := range f.group {
		if o.state == Started {
			count++
		}
	}
	return max(count, 1)
}

// Traffic implements Engine.
func (n *nics) Traffic(names []string, s TrafficState) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx == nil {
		return ErrNothing
	}
	if err := missing("flow", names, func(s string) bool {
		return slices.ContainsFunc(n.flows, func(f *nicFlow) bool { return f.cfg.Name == s })
	}); err != nil {
		return err
	}
	for _, f := range n.flows {
		if len(names) == 0 || slices.Contains(names, f.cfg.Name) {
			n.command(f, s)
		}
	}
	for _, q := range n.pairs {
		n.pace(q)
		q.post()
	}
	return nil
}

// command changes the state of a flow.
func (n *nics) command(f *nicFlow, s TrafficState) {
	switch {
	case s == Prepare:
		f.pair.up = true
	case s == Start && f.state != Started:
		f.sent, f.done, f.fails, f.completion, f.lastErr = 0, 0, 0, 0, ""
		f.state = Started
		ends := []*nicPair{f.pair}
		if r := n.pairs[f.pair.cfg.Remote]; r != nil {
			ends = append(ends, r)
		}
		for _, q := range ends {
			q.up = true
		}
		for _, q := range ends {
			n.connect(q)
		}
	default:
		f.state = f.state.after(s)
	}
}

// metric returns the metrics of a flow: those that completions give.
func (f *nicFlow) metric(n *nics) FlowMetric {
	q := f.pair
	m := FlowMetric{Name: f.cfg.Name, Far: f.cfg.Far, Read: f.cfg.Verb == Read, State: f.state}
	if f.cfg.Far {
		m.PortRx = q.port.cfg.Name
		if q.qp != nil {
			m.DestQP = q.qp.Num()
		}
		return m
	}
	m.PortTx, m.Source, m.Dest, m.DestQP = q.port.cfg.Name, q.peer.addr, q.peer.cfg.Destination, q.far.num
	m.MessagesTx, m.MessagesComplete, m.MessagesFailed, m.Completion, m.LastError = f.sent, f.done, f.fails, f.completion, cmp.Or(f.lastErr, q.lastErr)
	if q.qp != nil {
		m.SourceQP = q.qp.Num()
	}
	if r := n.pairs[q.cfg.Remote]; r != nil {
		m.PortRx = r.port.cfg.Name
	}
	return m
}
