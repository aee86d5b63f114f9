package engine

import (
	"cmp"
	"time"

	"roced.io/roced/plugin/mono"
)

// look runs f on the shard, unless nothing is configured.
func (e *engine) look(f func(now mono.Time)) {
	if e.run != nil {
		_ = e.do(func(now mono.Time) error { f(now); return nil })
	}
}

// PortMetrics implements Engine.
func (e *engine) PortMetrics() (all []PortMetric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(now mono.Time) {
		for _, p := range e.run.order() {
			all = append(all, p.metric(now))
		}
	})
	return all
}

func (p *testPort) metric(now mono.Time) PortMetric {
	up := p.link.State().Up && !p.down
	if up != p.wasUp {
		p.wasUp, p.changed = up, time.Now()
	}
	m := PortMetric{Name: p.cfg.Name, Location: p.cfg.Location, Up: up, Capturing: p.cap != nil && p.cap.on, LastChange: p.changed,
		FramesTx: p.tx.frames, FramesRx: p.rx.frames, BytesTx: p.tx.bytes, BytesRx: p.rx.bytes}
	m.FramesTxPerSecond, m.BytesTxPerSecond = p.tx.rates(now)
	m.FramesRxPerSec, m.BytesRxPerSecond = p.rx.rates(now)
	for _, r := range p.raws {
		m.Transmitting = m.Transmitting || r.state == Started
	}
	for _, f := range p.faces {
		if f.host != nil {
			for _, q := range f.host.pairs {
				m.Transmitting = m.Transmitting || q.state == pairUp && (*sendQueue)(q).Pending()
			}
		}
	}
	return m
}

// rates returns frames and bytes per second.
func (c *portCount) rates(now mono.Time) (frames, bytes float64) {
	return c.frameRate.sample(now, c.frames), c.byteRate.sample(now, c.bytes)
}

// PeerMetrics implements Engine.
func (e *engine) PeerMetrics() (all []PeerMetric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(mono.Time) {
		for _, p := range e.run.peers {
			m := PeerMetric{Name: p.cfg.Name, Configured: len(p.pairs), LastError: p.lastErr, Messages: true,
				RequestTx: p.tx.req, RequestRx: p.rx.req, ReplyTx: p.tx.rep, ReplyRx: p.rx.rep, ReadyTx: p.tx.rtu, ReadyRx: p.rx.rtu,
				DisconnectRequestTx: p.tx.dreq, DisconnectRequestRx: p.rx.dreq, DisconnectReplyTx: p.tx.drep, DisconnectReplyRx: p.rx.drep,
				RejectTx: p.tx.rej, RejectRx: p.rx.rej, UnknownRx: p.rx.other}
			for _, q := range p.pairs {
				if q.state == pairUp {
					m.Up++
				}
			}
			m.Down = m.Configured - m.Up
			all = append(all, m)
		}
	})
	return all
}

// FlowMetrics implements Engine.
func (e *engine) FlowMetrics() (all []FlowMetric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(now mono.Time) {
		for _, f := range e.run.flows {
			all = append(all, f.metric(now))
		}
	})
	return all
}

// metric returns the metrics of a flow.
func (f *flow) metric(now mono.Time) FlowMetric {
	q, r := f.ends()
	m := FlowMetric{Name: f.cfg.Name, Far: f.cfg.Far, Own: q != nil, Remote: r != nil, Read: f.cfg.Verb == Read, State: f.state}
	if q != nil {
		m.PortTx, m.SourceQP, m.DestQP = q.host.cfg.Port, q.cfg.Number, uint32(q.end.num)
		m.Source, m.Dest = q.peer.address.Prefix.Addr(), q.peer.cfg.Destination
		m.MessagesComplete, m.MessagesFailed, m.Completion, m.LastError = f.completed, f.failed, f.completion, cmp.Or(f.lastErr, q.lastErr)
		if q.state == pairUp {
			m.Dest = q.end.addr.Addr()
		}
		m.ACKRx, m.NAKRx = q.ackRx, q.nakRx
	}
	if r != nil {
		m.PortRx, m.DestQP, m.ACKTx, m.NAKTx = r.host.cfg.Port, r.cfg.Number, r.ackTx, r.nakTx
	}
	sender, receiver := q, r
	if m.Read {
		sender, receiver = r, q
	}
	if sender != nil {
		m.sent(now, sender)
	}
	if receiver != nil {
		m.received(now, receiver)
	}
	return m
}

// sent sets the counters of the data's sender.
func (m *FlowMetric) sent(now mono.Time, q *pair) {
	t := &q.reqTx
	if m.Read {
		t = &q.respTx
	}
	m.CNPRx = q.cnpRx
	m.FramesTx, m.BytesTx, m.Retransmitted, m.MessagesTx = t.frames, t.bytes, t.again, t.messages
	m.First, m.Last = wall(t.first), wall(t.last)
	m.RateTx = 8 * t.rate.sample(now, t.bytes)
}

// received sets the counters of the data's receiver.
func (m *FlowMetric) received(now mono.Time, q *pair) {
	t := &q.reqRx
	if m.Read {
		t = &q.respRx
	}
	m.CNPTx = q.cnpTx
	m.FramesRx, m.BytesRx, m.SequenceErrors, m.MessagesComplete, m.MarkedRx = t.frames, t.bytes, t.ahead, t.messages, t.marked
	m.RateRx = 8 * t.rate.sample(now, t.bytes)
	l := &q.latency
	m.HasLatency, m.LatencyMin, m.LatencyMax = q.remote != nil && q.remote.stamps != nil, l.min, l.max
	if l.count > 0 {
		m.LatencyAvg = time.Duration(l.sum / l.count)
	}
}

// RawFlowMetrics implements Engine.
func (e *engine) RawFlowMetrics() (all []RawFlowMetric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(now mono.Time) {
		for _, n := range e.run.rawOrder {
			r := e.run.raws[n]
			m := RawFlowMetric{Name: n, PortTx: r.cfg.Tx, PortRx: r.rxAt, State: r.state, FramesTx: r.tx, FramesRx: r.rx,
				BytesTx: r.txBytes, BytesRx: r.rxBytes, First: wall(r.first), Last: wall(r.last), Counted: r.cfg.Metrics && len(r.cfg.Rx) > 0}
			if m.PortRx == "" && len(r.cfg.Rx) > 0 {
				m.PortRx = r.cfg.Rx[0]
			}
			m.FramesTxPerSec, m.FramesRxPerSec = r.txm.sample(now, r.tx), r.rxm.sample(now, r.rx)
			all = append(all, m)
		}
	})
	return all
}

// Neighbors implements Engine.
func (e *engine) Neighbors() (all []Neighbor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(mono.Time) {
		for _, h := range e.run.hosts {
			for _, n := range h.core.Neighbours() {
				if n.Usable() {
					all = append(all, Neighbor{h.cfg.Name, n.Address.Addr.Addr(), n.MAC})
				}
			}
		}
	})
	return all
}
