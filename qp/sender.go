package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// sender is what is known of packets that are sent and acknowledged: which of them are
// outstanding, how many may be, and by which paths they leave. Requests have one;
// responses of the extended transports, which are acknowledged too, have another.
type sender struct {
	q       *QP
	rec     retrans.Recovery // nil: nothing is acknowledged (UC, UD)
	ctl     ccalgo.Controller
	paths   path.Selector
	each    bool // congestion control counts each acknowledgement, which answers one packet
	onePath bool // all packets leave by that of the connection
	clocked bool // paths look at the window: acknowledgements clock packets out
	free    bool // there is no congestion control
	// responses: they are what is sent; for tracers and for random choices.
	responses bool
	// overdue says that the oldest packet is sent again after a timeout whatever the window,
	// which may be full of packets that have been lost (RFC 6298 5.4).
	overdue bool

	can   *abilities
	nxt   bth.PSN // next PSN never sent
	una   bth.PSN // lowest unacknowledged
	timer timing
}

// source has the packets of a sender.
type source interface {
	// fresh fills t with the next packet that has not been sent, if it may leave now.
	fresh(now mono.Time, t *Transmit) bool
	// again fills t with a packet that has been sent, if it may leave now.
	again(now mono.Time, psn bth.PSN, t *Transmit) bool
	// exhausted reports whether there is nothing fresh.
	exhausted() bool
}

// abilities are what some plug-ins of extended transports can do besides; nil: they cannot.
type abilities struct {
	bounded retrans.Capped // bounds what is outstanding (BDP-FC, IRN 3.2)
	early   retrans.Early  // sends again what may have been lost
	syncer  path.Syncer    // synchronise operations wait for slower paths
	syncAt  mono.Time      // one waits until then; zero: none does
}

// newSender has nothing but its plug-ins.
func newSender(q *QP, rec retrans.Recovery, ctl ccalgo.Controller, paths path.Selector) sender {
	s := sender{q: q, rec: rec, ctl: ctl, paths: paths}
	if q.x != nil {
		s.each = q.x.PerPacket
		s.can = new(abilities)
		s.can.bounded, _ = rec.(retrans.Capped)
		s.can.early, _ = rec.(retrans.Early)
		s.can.syncer, s.clocked = paths.(path.Syncer)
	}
	_, s.free = ctl.(ccalgo.None)
	_, s.onePath = paths.(*path.Single)
	return s
}

// clear forgets what was sent; psn comes next.
func (s *sender) clear(psn bth.PSN) {
	s.una, s.nxt, s.timer, s.overdue = psn, psn, timing{}, false
	if s.rec != nil {
		s.rec.Reset(psn)
	}
}

// start begins a connection at psn.
func (s *sender) start(psn bth.PSN) {
	s.clear(psn)
	s.ctl.Reset(int(s.q.mtu))
	seed := s.q.cfg.Tuning.PathSeed
	if seed == 0 {
		seed = uint64(s.q.cfg.QPN)<<24 | uint64(psn.Uint32())
	}
	if s.responses {
		seed ^= 1 << 63
	}
	s.paths.Reset(path.Start{PSN: psn, Seed: seed})
}

// outstanding is the number of PSNs sent and not acknowledged.
func (s *sender) outstanding() uint32 { return distance(s.una, s.nxt) }

// limits returns the window in bytes and the rate in bits per second.
func (s *sender) limits() (window, rate uint64) {
	window, rate = ccalgo.Unlimited, ccalgo.Unlimited
	if !s.free {
		window, rate = s.ctl.Limits()
	}
	if kbps := s.q.attr.RateLimit; kbps != 0 {
		rate = min(rate, uint64(kbps)*1000)
	}
	return window, rate
}

// window is what path selection has to know, in packets.
func (s *sender) window() path.Window {
	bytes, _ := s.limits()
	return path.Window{Packets: uint32(min(bytes/uint64(s.q.mtu), 1<<31)), InFlight: s.rec.InFlight()}
}

// hasRoom reports whether the recovery allows one more packet to be outstanding.
func (s *sender) hasRoom() bool {
	return s.can == nil || s.can.bounded == nil || s.outstanding() < s.can.bounded.Cap()
}

// next fills t with the next packet: lost ones first, then new ones, then early copies of
// those that are not acknowledged (see package path for the order).
func (s *sender) next(now mono.Time, t *Transmit, from source) bool {
	if s.onePath {
		return s.choose(now, t, from, path.Window{})
	}
	var w path.Window
	if s.clocked {
		w = s.window()
	}
	vp, ok := s.paths.Next(now, w)
	if !ok || !s.choose(now, t, from, w) {
		return false
	}
	t.Path = vp
	s.paths.OnSent(now, w)
	return true
}

// choose fills t with the next packet, of which the path is not set.
func (s *sender) choose(now mono.Time, t *Transmit, from source, w path.Window) bool {
	if psn, lost := s.rec.NextRetransmit(); lost {
		return from.again(now, psn, t)
	}
	return from.fresh(now, t) || s.clocked && s.earlyRetransmit(now, t, from, w)
}

// earlyRetransmit sends an unacknowledged packet again, because there is nothing else to send or
// the recovery allows nothing new (MP-RDMA 3.5). An acknowledgement that finds nothing at
// all narrows the window.
func (s *sender) earlyRetransmit(now mono.Time, t *Transmit, from source, w path.Window) bool {
	nothing := from.exhausted()
	if !nothing && s.hasRoom() {
		return false
	}
	if s.can.early != nil && w.Room() > 0 {
		if psn, ok := s.can.early.NextEarly(); ok {
			return from.again(now, psn, t)
		}
	}
	if nothing {
		s.shrink(s.paths.Unused())
	}
	return false
}

// charge accounts for a packet to pacing and congestion control, to the latter as bytes of
// its data with so many of them in flight.
func (s *sender) charge(now mono.Time, p *bth.Packet, bytes, inflight uint32) {
	if _, rate := s.limits(); rate != ccalgo.Unlimited {
		s.q.req.pace.Charge(now, s.q.wireLen(p), rate, s.q.cfg.Tuning.PacerCredit)
	} else {
		s.q.req.pace.Unlimited()
	}
	if !s.free {
		s.ctl.OnSent(now, bytes, inflight)
	}
}

// stale reports whether an acknowledgement says nothing of what is outstanding. One that
// has been overtaken on a shorter path still does: the packet that it answers has arrived,
// or has left the network at least, by its path (MP-RDMA 3.2). That packet must have been
// sent, or it would make all paths look slow.
func (s *sender) stale(p *bth.Packet) bool {
	h := &p.Ext
	if h.Flags&bth.XHasSACK == 0 {
		return distance(s.una, p.PSN) > s.outstanding()
	}
	return !s.recent(p.PSN) || !s.recent(h.SACK)
}

// recent reports whether psn is outstanding, the next, or was acknowledged lately.
func (s *sender) recent(psn bth.PSN) bool {
	return distance(s.una, psn) <= s.outstanding() || distance(psn, s.una) <= retrans.MaxLate
}

// feedback hands what the peer says to the recovery.
func (s *sender) feedback(now mono.Time, f *reorder.Feedback) retrans.Outcome {
	s.q.scratch.rtt = 0
	out := s.rec.OnFeedback(now, f)
	if out.Acked > 0 {
		s.una, s.overdue = s.rec.Una(), false
		s.q.scratch.rtt = s.timer.acked(now, s.una, s.nxt)
	}
	if s.timer.running && !s.each && f.HasSACK && !f.Refused && f.SACK == s.timer.psn {
		s.timer.running, s.q.scratch.rtt = false, now.Sub(s.timer.since)
	}
	if d := s.q.ctr.Distributions; d != nil && s.q.scratch.rtt > 0 {
		d.RTT.add(uint64(s.q.scratch.rtt))
	}
	s.q.traceAck(now, f, s.q.scratch.rtt, s.responses)
	return out
}

// clock tells congestion control and paths of an acknowledgement, in this order, after
// feedback; inflight is in bytes.
func (s *sender) clock(now mono.Time, f *reorder.Feedback, inflight uint32) {
	if s.each {
		bytes := s.q.mtu // of the packet that is answered, about
		if f.Refused {
			bytes = 0
		}
		s.ctl.OnAck(now, ccalgo.Sample{Bytes: bytes, InFlight: inflight, RTT: s.q.scratch.rtt, ECN: f.ECE})
	}
	if s.clocked {
		s.shrink(s.paths.OnAck(now, f, s.q.scratch.rtt, s.window()))
	}
}

// shrink narrows the congestion window for other reasons than congestion.
func (s *sender) shrink(packets int) {
	if c, ok := s.ctl.(ccalgo.Shrinker); ok && packets > 0 {
		c.Shrink(packets)
	}
}

// lost tells congestion control of a loss, and the paths if it was a timeout.
func (s *sender) lost(now mono.Time, packets uint32, timeout bool) {
	s.q.ctr.CompleterRetry++
	s.ctl.OnLoss(now, packets, timeout)
	s.timer.running = false
	if timeout {
		s.paths.Restart()
	}
}

// timedOut tells the recovery that its deadline has passed, and returns what is lost.
func (s *sender) timedOut(now mono.Time) uint32 {
	s.q.ctr.LocalAckTimeoutErr++
	s.overdue = true
	lost := s.rec.OnTimeout(now).Lost
	s.q.traceTimeout(now, s.una, lost, s.responses)
	return lost
}

// deadline is when congestion control or paths want to be called.
func (s *sender) deadline() mono.Time { return s.ctl.Deadline().Min(s.paths.Deadline()) }

// onDeadline calls those of them whose deadline has passed.
func (s *sender) onDeadline(now mono.Time) {
	if now >= s.ctl.Deadline() {
		s.ctl.OnTimeout(now)
	}
	if now >= s.paths.Deadline() {
		s.paths.OnTimeout(now, s.window())
	}
}

// timing measures the round-trip time of one packet at a time.
type timing struct {
	running bool
	psn     bth.PSN
	since   mono.Time
}

// sent begins, unless a packet is being timed already. Packets that are sent again are not
// timed: their answers do not tell which transmission they are for (Karn's rule).
func (m *timing) sent(now mono.Time, psn bth.PSN) {
	if !m.running {
		*m = timing{true, psn, now}
	}
}

// acked returns the round-trip time if the packet is acknowledged, else zero.
func (m *timing) acked(now mono.Time, una, nxt bth.PSN) time.Duration {
	if !m.running || distance(una, m.psn) < distance(una, nxt) {
		return 0
	}
	m.running = false
	return now.Sub(m.since)
}
