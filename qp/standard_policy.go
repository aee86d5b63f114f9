package qp

import (
	"math"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// standardPolicy is the senderPolicy of standard RC, and of UC and UD, which are not acknowledged. Responses have the
// PSNs of their request, packets have no extension header, and each loss uses a retry.
//
// It sends tail loss probes (RFC 8985 7). Tail losses trigger no NAK, because no packet follows the one that requests
// an acknowledgement. Without a probe only the timeout, thousands of round trips later, detects the loss of that
// packet or of its acknowledgement. After a few round trips the policy retransmits one packet. The peer acknowledges
// the duplicate (IBTA vol.1 9.7.5.1.4). A probe is no loss and uses no retry.
//
// The first probe is the last packet: its acknowledgement covers all packets, and ahead of a gap it triggers a NAK.
// The next is the oldest packet, for a peer that has already reported the gap and stays silent. They alternate, and
// the wait doubles each time.
type standardPolicy struct{ r *requester }

// tailProbe is the state of tail loss probes.
type tailProbe struct {
	rtt  rttEstimate
	sent uint8 // probes since the last progress
	due  bool  // a probe is to be sent
}

// start implements senderPolicy.
func (standardPolicy) start(bth.PSN) {}

// configure implements senderPolicy.
func (standardPolicy) configure() {}

// resume implements senderPolicy.
func (standardPolicy) resume(mono.Time) {}

// spans implements senderPolicy.
func (standardPolicy) spans(n uint32, _ bool) (span, rspan uint32) { return n, 0 }

// mayLeave implements senderPolicy: at most half of the PSN space may be outstanding.
func (s standardPolicy) mayLeave(next *slot) bool {
	n := s.r.outstanding()
	return n == 0 || next.kind != kindRead || n+next.span <= maxSpan
}

// stamp implements senderPolicy.
func (standardPolicy) stamp(mono.Time, *slot, uint32, bool, *bth.Packet) {}

// requestsAck implements senderPolicy (IBTA vol.1 9.7.3, AckReq). A responder need not acknowledge other packets, and
// rxe does not. A packet requests an acknowledgement
//
//   - at the end of a message unless another packet follows at once, which would request it instead: this completes
//     the last request of a burst
//   - several times in the PSN window or the congestion window (Tuning.AcksPerWindow), so that acknowledgements
//     stream while packets do
//   - when it fills the window: no packet follows until an acknowledgement arrives
//   - when the packets before it have waited for an eighth of the timeout, as they do under a rate limit, so that
//     slowness does not count as loss
//   - when it is the last of a retransmission
//   - always, if congestion control needs the telemetry that acknowledgements return.
//
// pollProbe handles later obstacles, such as a window that shrinks or a queue that drains.
func (s standardPolicy) requestsAck(now mono.Time, ends, retransmit bool) bool {
	r := s.r
	if r.control == telemetered {
		return true
	}
	stop := ends && (r.q.cfg.Tuning.AcksPerWindow == 0 || r.pace.Next > now || !r.follows())
	if retransmit {
		_, more := r.rec.NextRetransmit()
		stop = !more
	}
	a, limit := &r.acks, r.q.maxUnacked()
	window := uint64(ccalgo.Unlimited)
	if r.control != noControl {
		bytes, _ := r.limits()
		window, limit = bytes, uint32(min(uint64(limit), bytes/uint64(r.q.mtu)))
	}
	if stop || uint64(a.count+2)*uint64(r.q.cfg.Tuning.acksPerWindow()) > uint64(limit) || r.full(r.outstanding()) {
		return true
	}
	if a.count > 0 {
		if timeout := r.q.ackTimeout(); timeout > 0 && now.Sub(a.since) >= timeout/8 {
			return true
		}
	}
	return r.control != noControl && uint64(r.bytesInFlight()) >= window
}

// onAckReq implements senderPolicy.
func (s standardPolicy) onAckReq(now mono.Time) { s.r.since, s.r.tail.due = now, false }

// pollProbe implements senderPolicy. It retransmits a packet with AckReq in two cases. A tail loss probe is due, or
// no other packet can be sent and no outstanding packet has requested an acknowledgement. Looking ahead makes the
// latter rare.
func (s standardPolicy) pollProbe(now mono.Time, t *Transmit) bool {
	r := s.r
	if r.q.Blocked() || r.acks.pending() && !r.tail.due || r.pace.Waiting || r.outstanding() == 0 || !r.q.sending() || !r.pace.Ready(now) {
		return false
	}
	psn := r.nxt.Add(-1)
	if r.hasBad && r.At(r.bad).sent > 0 {
		psn = r.At(r.bad).first.Add(-1)
	}
	if r.tail.due {
		if r.tail.sent%2 == 1 {
			psn = r.una
		}
		r.tail.sent++
		r.since, r.tail.due = now, false
		r.timer.stop() // Karn's rule
	}
	i, k, ok := r.locate(psn)
	if !ok || !r.At(i).oneAnswer() || !r.resend(now, i, k, t) {
		return false
	}
	if !t.Packet.AckReq {
		t.Packet.AckReq = true
		r.recordAckReq(now, psn, true)
	}
	return true
}

// receive implements senderPolicy: the responses to a request have its PSNs. A packet with a PSN that is not
// outstanding is stale, of an earlier exchange, and is ignored (IBTA vol.1 9.7.5.1.2).
func (s standardPolicy) receive(now mono.Time, p *bth.Packet, _ arrival) Drop {
	r := s.r
	switch {
	case s.r.rec == nil:
		return DropState
	case p.PSN.Since(r.una) >= r.outstanding():
		return DropStaleAck
	case !p.Opcode.IsAck():
		return r.onResponse(now, p)
	case !p.AETH.Syndrome.IsACK():
		return r.onNAK(now, p)
	case !r.acknowledge(now, p.PSN.Next(), p):
		return DropOutOfOrder
	}
	return Accepted
}

// acksFollowResponses implements senderPolicy.
func (s standardPolicy) acksFollowResponses() bool { return s.r.rdOut > 0 }

// onProgress implements senderPolicy. After a probe no round trip is measured, because either transmission may have
// been acknowledged. Each premature probe adds an eighth of the probe timeout to the variation: probes become rarer.
// Round trips measured between losses outweigh that.
func (s standardPolicy) onProgress(rtt time.Duration) {
	t := &s.r.tail
	if t.sent > 0 {
		t.rtt.spread = uint32(min(time.Duration(t.rtt.spread)+s.pto()/8, math.MaxInt32))
	} else if rtt > 0 {
		t.rtt.add(rtt)
	}
	t.sent, t.due = 0, false
}

// onLoss implements senderPolicy: it uses a retry (IBTA vol.1 9.9.2.4).
func (s standardPolicy) onLoss(now mono.Time) {
	s.r.acks.onLoss()
	s.r.useRetry(now)
}

// pto returns the probe timeout. A longer local ACK timeout (14: 67 ms) delays probes as well: on busy hosts an
// acknowledgement may be late by many round trips.
func (s standardPolicy) pto() time.Duration {
	q, trip := s.r.q, &s.r.tail.rtt
	return max(time.Duration(trip.mean)+4*time.Duration(trip.spread), q.cfg.Tuning.TailProbe, q.ackTimeout()/probesPerTimeout)
}

// probesPerTimeout limits the probes in an ACK timeout: a probe waits at least for this part of the timeout.
const probesPerTimeout = 64

// deadline implements senderPolicy: it returns the time of the next probe. There is no probe before a round trip has
// been measured, if the timeout is as near, or under congestion control. An opening window fills queues, in which a
// packet takes a hundred times as long as the packets before it.
func (s standardPolicy) deadline() mono.Time {
	r := s.r
	switch {
	case r.q.cfg.Tuning.TailProbe == 0, r.control != noControl:
		return mono.Never
	case !r.acks.pending(), r.tail.rtt.mean == 0, r.tail.due:
		return mono.Never
	}
	wait := s.pto() << r.tail.sent
	if wait > r.q.ackTimeout()/2 {
		return mono.Never
	}
	return r.since.Add(wait)
}

// onDeadline implements senderPolicy: pollProbe sends the probe, unless another queue pair probes the peer.
func (s standardPolicy) onDeadline(now mono.Time) {
	r := s.r
	if p := r.q.peering; p != nil && !p.mayProbe(r.q) {
		r.tail.sent++
		r.since = now
		return
	}
	r.tail.due = true
}

// roundTrip is the smoothed round-trip time and its variation (RFC 6298 2), in ns.
type rttEstimate struct {
	mean, spread uint32
}

// add takes a measurement into account.
func (t *rttEstimate) add(d time.Duration) {
	n := uint32(min(d, math.MaxInt32))
	if t.mean == 0 {
		*t = rttEstimate{n, n / 2}
		return
	}
	diff := int32(n - t.mean)
	t.spread += uint32((max(diff, -diff) - int32(t.spread)) / 4)
	t.mean += uint32(diff / 8)
}
