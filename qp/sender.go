package qp

import (
	"math"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// sender tracks packets that are sent and acknowledged: which of them are outstanding, how many may be, and which
// paths they take. Requests have one; responses of the extended transports, which are acknowledged too, have another.
type sender struct {
	q         *QP
	rec       retrans.Recovery // nil: packets are not acknowledged (UC, UD)
	ctl       ccalgo.Controller
	paths     path.Selector
	perPacket bool // congestion control counts each acknowledgement, which answers one packet
	onePath   bool // all packets take the path of the connection
	clocked   bool // paths need the window: acknowledgements clock packets out
	control   controlKind
	responses bool // the sender sends responses; for tracers and random choices
	// overdue lets the oldest packet leave after a timeout, whatever the window: lost packets may fill it (RFC 6298
	// 5.4).
	overdue bool
	// retries and rnrRetries are the remaining retries of a requester. Here they fill padding.
	retries, rnrRetries uint8

	caps  *capabilities
	nxt   bth.PSN // next PSN never sent
	una   bth.PSN // lowest unacknowledged
	timer rttTimer
}

// source provides the packets of a sender.
type source interface {
	// fresh fills t with the next packet that has not been sent, if it may leave now.
	fresh(now mono.Time, t *Transmit) bool
	// retransmit fills t with a packet that has been sent, if it may leave now.
	retransmit(now mono.Time, psn bth.PSN, t *Transmit) bool
	// exhausted reports whether all packets have been sent.
	exhausted() bool
}

// capabilities are optional interfaces of the plug-ins of extended transports; nil: not implemented.
type capabilities struct {
	bounded retrans.Capped // limits outstanding packets (BDP-FC, IRN 3.2)
	early   retrans.Early  // retransmits packets that may be lost
	router  router         // decides and records the path of each packet
	syncer  path.Syncer    // synchronise operations wait for slower paths
	syncAt  mono.Time      // a synchronise operation waits until then; zero: none waits
}

// router records the path of each outstanding packet.
type router interface {
	// avoid is called before psn is retransmitted.
	avoid(psn bth.PSN)
	// routed is called after a packet has been built that leaves on the path vp.
	routed(p *bth.Packet, vp uint32)
}

func newSender(q *QP, rec retrans.Recovery, ctl ccalgo.Controller, paths path.Selector) sender {
	s := sender{q: q, rec: rec}
	if q.x != nil {
		s.perPacket = q.x.PerPacket
		s.caps = new(capabilities)
		s.caps.bounded, _ = rec.(retrans.Capped)
		s.caps.early, _ = rec.(retrans.Early)
	}
	s.plug(ctl, paths)
	return s
}

// plug sets congestion control and path selection.
func (s *sender) plug(ctl ccalgo.Controller, paths path.Selector) {
	s.ctl, s.paths = ctl, paths
	if s.caps != nil {
		s.caps.syncer, s.clocked = paths.(path.Syncer)
	}
	s.control = controlOf(ctl)
	_, s.onePath = paths.(*path.Single)
}

// controlKind is the kind of congestion control.
type controlKind uint8

const (
	ordinary    controlKind = iota
	noControl               // there is none
	telemetered             // it needs telemetry
)

func controlOf(ctl ccalgo.Controller) controlKind {
	switch ctl.(type) {
	case ccalgo.None:
		return noControl
	case ccalgo.Telemetered:
		return telemetered
	}
	return ordinary
}

// clear drops all state; psn is the next one to send.
func (s *sender) clear(psn bth.PSN) {
	s.una, s.nxt, s.timer, s.overdue = psn, psn, rttTimer{}, false
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

// outstanding returns the number of PSNs sent and not acknowledged.
func (s *sender) outstanding() uint32 { return s.nxt.Since(s.una) }

// limits returns the window in bytes and the rate in bits per second.
func (s *sender) limits() (window, rate uint64) {
	window, rate = ccalgo.Unlimited, ccalgo.Unlimited
	if s.control != noControl {
		window, rate = s.ctl.Limits()
	}
	if kbps := s.q.attr.RateLimit; kbps != 0 {
		rate = min(rate, uint64(kbps)*1000)
	}
	return window, rate
}

// window returns the window for path selection, in packets.
func (s *sender) window() path.Window {
	bytes, _ := s.limits()
	return path.Window{Packets: uint32(min(bytes/uint64(s.q.mtu), 1<<31)), InFlight: s.rec.InFlight()}
}

// hasRoom reports whether the recovery allows one more packet to be outstanding.
func (s *sender) hasRoom() bool {
	return s.caps == nil || s.caps.bounded == nil || s.outstanding() < s.caps.bounded.Cap()
}

// next fills t with the next packet: lost packets first, then new ones, then early retransmissions of unacknowledged
// packets (see package path for the order).
func (s *sender) next(now mono.Time, t *Transmit, from source) bool {
	if s.onePath {
		return s.choose(now, t, from, path.Window{})
	}
	var w path.Window
	if s.clocked {
		w = s.window()
	}
	if s.caps.router != nil {
		if psn, lost := s.rec.NextRetransmit(); lost {
			s.caps.router.avoid(psn)
		}
	}
	vp, ok := s.paths.Next(now, w)
	if !ok || !s.choose(now, t, from, w) {
		return false
	}
	if s.caps.router != nil {
		s.caps.router.routed(&t.Packet, vp)
	}
	t.Path = vp
	s.paths.OnSent(now, w)
	return true
}

// choose fills t with the next packet, except for its path.
func (s *sender) choose(now mono.Time, t *Transmit, from source, w path.Window) bool {
	if psn, lost := s.rec.NextRetransmit(); lost {
		return from.retransmit(now, psn, t)
	}
	return from.fresh(now, t) || s.clocked && s.earlyRetransmit(now, t, from, w)
}

// earlyRetransmit retransmits an unacknowledged packet because all packets have been sent or the recovery allows no
// new one (MP-RDMA 3.5). If there is nothing to retransmit either, the window shrinks.
func (s *sender) earlyRetransmit(now mono.Time, t *Transmit, from source, w path.Window) bool {
	exhausted := from.exhausted()
	if !exhausted && s.hasRoom() {
		return false
	}
	if s.caps.early != nil && w.Room() > 0 {
		if psn, ok := s.caps.early.NextEarly(); ok {
			return from.retransmit(now, psn, t)
		}
	}
	if exhausted {
		s.shrink(s.paths.Unused())
	}
	return false
}

// charge accounts a packet to pacing and to congestion control; the latter counts bytes of data, with inflight bytes
// in flight.
func (s *sender) charge(now mono.Time, p *bth.Packet, bytes, inflight uint32) {
	if _, rate := s.limits(); rate != ccalgo.Unlimited {
		s.q.req.pace.Charge(now, s.q.wireLen(p), rate, s.q.cfg.Tuning.PacerCredit)
	} else {
		s.q.req.pace.Unlimited()
	}
	if s.control != noControl {
		s.ctl.OnSent(now, bytes, inflight)
	}
}

// stale reports whether an acknowledgement has no information on outstanding packets. An acknowledgement overtaken on
// a shorter path is not stale: its packet has arrived, or has at least left the network, on its path (MP-RDMA 3.2).
// That packet must have been sent; otherwise all paths would look slow.
func (s *sender) stale(p *bth.Packet) bool {
	h := &p.Ext
	if h.Flags&bth.XHasSACK == 0 {
		return p.PSN.Since(s.una) > s.outstanding()
	}
	return !s.recent(p.PSN) || !s.recent(h.SACK)
}

// recent reports whether psn is outstanding, the next, or was acknowledged lately.
func (s *sender) recent(psn bth.PSN) bool {
	return psn.Since(s.una) <= s.outstanding() || s.una.Since(psn) <= retrans.MaxLate
}

// feedback passes an acknowledgement to the recovery. rtt is the round-trip time by its timestamp, zero without one.
func (s *sender) feedback(now mono.Time, f *reorder.Feedback, rtt time.Duration) retrans.Outcome {
	s.q.scratch.rtt = rtt
	out := s.rec.OnFeedback(now, f)
	if out.Acked > 0 {
		s.una, s.overdue = s.rec.Una(), false
		s.q.scratch.rtt = max(rtt, s.timer.onAck(now, s.una, s.nxt))
	}
	if s.timer.running() && f.HasSACK && f.SACK == s.timer.psn && !f.Refused && (!s.perPacket || s.q.x.SelectiveRTT) {
		s.q.scratch.rtt = max(now.Sub(s.timer.since), leastRTT)
		s.timer.stop()
	}
	if d := s.q.ctr.Distributions; d != nil && s.q.scratch.rtt > 0 {
		d.RTT.add(uint64(s.q.scratch.rtt))
	}
	if fl := s.q.peering; fl != nil {
		fl.onAck(now, out.Acked, s.q.scratch.rtt)
	}
	s.q.traceAck(now, f, s.q.scratch.rtt, s.responses)
	return out
}

// clock reports an acknowledgement to congestion control, then to the paths, after feedback; inflight is in bytes.
func (s *sender) reportAck(now mono.Time, f *reorder.Feedback, inflight uint32) {
	if s.perPacket {
		bytes := s.q.mtu // about the size of the acknowledged packet
		if f.Refused {
			bytes = 0
		}
		s.ctl.OnAck(now, ccalgo.Sample{Bytes: bytes, InFlight: inflight, RTT: s.q.scratch.rtt, ECN: f.ECE})
	}
	if s.clocked {
		s.shrink(s.paths.OnAck(now, f, s.q.scratch.rtt, s.window()))
	}
}

// shrink reduces the congestion window for reasons other than congestion.
func (s *sender) shrink(packets int) {
	if c, ok := s.ctl.(ccalgo.Shrinker); ok && packets > 0 {
		c.Shrink(packets)
	}
}

// lost reports a loss to congestion control, and a timeout to the paths.
func (s *sender) lost(now mono.Time, packets uint32, timeout bool) {
	s.q.ctr.CompleterRetry++
	if f := s.q.peering; f != nil {
		f.onLoss(now, s.age(now, timeout))
	}
	s.ctl.OnLoss(now, packets, timeout)
	s.timer.stop()
	if timeout {
		s.paths.Restart()
	}
}

// age returns how long ago a lost packet was sent, zero if that is unknown.
func (s *sender) age(now mono.Time, timeout bool) time.Duration {
	switch {
	case s.timer.running():
		return now.Sub(s.timer.since)
	case timeout:
		return s.q.ackTimeout()
	}
	return 0
}

// timedOut calls the recovery at its deadline, and returns the number of lost packets.
func (s *sender) timedOut(now mono.Time) uint32 {
	s.q.ctr.LocalAckTimeoutErr++
	s.overdue = true
	lost := s.rec.OnTimeout(now).Lost
	s.q.traceTimeout(now, s.una, lost, s.responses)
	return lost
}

// deadline returns the next deadline of congestion control or paths.
func (s *sender) deadline() mono.Time { return s.ctl.Deadline().Min(s.paths.Deadline()) }

// onDeadline calls congestion control and paths if their deadlines have passed.
func (s *sender) onDeadline(now mono.Time) {
	if now >= s.ctl.Deadline() {
		s.ctl.OnTimeout(now)
	}
	if now >= s.paths.Deadline() {
		s.paths.OnTimeout(now, s.window())
	}
}

// rttTimer measures round-trip times from a first packet. If the acknowledgement covers all packets, it answers the newest
// one, and the round trip begins there: the pauses of a paced sender are no delay of the network. The fields take two words,
// because each queue pair has a timer.
type rttTimer struct {
	psn    bth.PSN   // first packet
	newest uint32    // time from the first packet to the newest, in nanoseconds plus one; 0: no timer runs
	since  mono.Time // when the first packet was sent
}

func (m *rttTimer) running() bool { return m.newest != 0 }

func (m *rttTimer) stop() { m.newest = 0 }

// onSent times a packet. The caller times no retransmission: its acknowledgement may belong to either transmission
// (Karn's rule).
func (m *rttTimer) onSent(now mono.Time, psn bth.PSN) {
	if !m.running() {
		m.psn, m.since = psn, now
	}
	m.newest = uint32(min(now.Sub(m.since), math.MaxUint32-1)) + 1
}

// onAck returns the round-trip time if the first packet is acknowledged, else zero.
func (m *rttTimer) onAck(now mono.Time, una, nxt bth.PSN) time.Duration {
	if !m.running() || m.psn.Since(una) < nxt.Since(una) {
		return 0
	}
	rtt := now.Sub(m.since)
	if una == nxt {
		rtt -= time.Duration(m.newest - 1)
	}
	m.stop()
	return max(rtt, leastRTT)
}

// leastRTT is the round-trip time of packets that are acknowledged at the instant of their transmission, by a queue pair of
// the same NIC. Zero means that none was measured.
const leastRTT = time.Nanosecond
