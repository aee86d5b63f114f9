package engine

import (
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
			m := PeerMetric{Name: p.cfg.Name, Configured: len(p.pairs), LastError: p.lastErr,
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

// metric returns the metrics of a flow. Those at an end that is elsewhere are zero.
func (f *flow) metric(now mono.Time) FlowMetric {
	q, r := f.pair, f.pair.remote
	m := FlowMetric{Name: f.cfg.Name, PortTx: q.host.cfg.Port, Remote: r != nil, State: f.state, SourceQP: q.cfg.Number,
		DestQP: uint32(q.end.num), Source: q.peer.address.Prefix.Addr(), Dest: q.peer.cfg.Destination,
		MessagesFailed: f.failed, Completion: f.completion, LastError: f.lastErr}
	if m.LastError == "" {
		m.LastError = q.lastErr
	}
	if q.state == pairUp {
		m.Dest = q.end.addr.Addr()
	}
	m.ACKRx, m.NAKRx = q.ackRx, q.nakRx
	tx, rx := &q.reqTx, (*tally)(nil)
	data, sink := q, r
	if r != nil {
		m.PortRx, m.DestQP = r.host.cfg.Port, r.cfg.Number
		m.ACKTx, m.NAKTx = r.ackTx, r.nakTx
		rx = &r.reqRx
	}
	if q.read {
		data, sink = r, q
		tx, rx = nil, &q.respRx
		if r != nil {
			tx = &r.respTx
		}
	}
	if data != nil {
		m.CNPRx = data.cnpRx
		m.FramesTx, m.BytesTx, m.Retransmitted, m.MessagesTx = tx.frames, tx.bytes, tx.again, tx.messages
		m.First, m.Last = wall(tx.first), wall(tx.last)
		m.RateTx = 8 * tx.rate.sample(now, tx.bytes)
	}
	if sink != nil {
		m.CNPTx = sink.cnpTx
		m.FramesRx, m.BytesRx, m.SequenceErrors, m.MessagesComplete, m.MarkedRx = rx.frames, rx.bytes, rx.ahead, rx.messages, rx.marked
		m.RateRx = 8 * rx.rate.sample(now, rx.bytes)
		if l := &sink.latency; l.count > 0 {
			m.HasLatency, m.LatencyAvg = true, time.Duration(l.sum/l.count)
			m.LatencyMin, m.LatencyMax = l.min, l.max
		}
	}
	return m
}

// RawFlowMetrics implements Engine.
func (e *engine) RawFlowMetrics() (all []RawFlowMetric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.look(func(now mono.Time) {
		for _, n := range e.run.rawOrder {
			r := e.run.raws[n]
			m := RawFlowMetric{Name: n, PortTx: r.cfg.Tx, PortRx: r.rxAt, State: r.state, FramesTx: r.tx, FramesRx: r.rx,
				BytesTx: r.tx * uint64(r.frame.Len+fcsLen), BytesRx: r.rxBytes, First: wall(r.first), Last: wall(r.last)}
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
