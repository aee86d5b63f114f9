package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// ackPolicy records which packets have requested an acknowledgement (see standardPolicy.requestsAck).
type ackPolicy struct {
	since mono.Time // when the first packet after the last AckReq was sent
	count uint32    // packets sent after the last AckReq
	due   uint32    // last PSN with AckReq that has not been acknowledged, plus one; 0: none
}

// pending reports whether a requested acknowledgement has not arrived.
func (a *ackPolicy) pending() bool { return a.due != 0 }

// onSent records a packet; psn is its last PSN.
func (a *ackPolicy) onSent(now mono.Time, psn bth.PSN, ackReq bool) {
	if !ackReq {
		if a.count == 0 {
			a.since = now
		}
		a.count++
		return
	}
	a.count, a.due = 0, psn.Uint32()+1
}

// onLoss forgets all requests: they have to be repeated.
func (a *ackPolicy) onLoss() { a.count, a.due = 0, 0 }

// onAck records progress.
func (a *ackPolicy) onAck(una, nxt bth.PSN) {
	if a.pending() && bth.MakePSN(a.due-1).Since(una) >= nxt.Since(una) {
		a.due = 0
	}
}

// recordAckReq records that a packet has been sent, and whether it requests an acknowledgement. psn is its last PSN.
func (r *requester) recordAckReq(now mono.Time, psn bth.PSN, ackReq bool) {
	r.acks.onSent(now, psn, ackReq)
	if ackReq {
		r.policy.onAckReq(now)
	}
}

// retransmit implements source.
func (r *requester) retransmit(now mono.Time, psn bth.PSN, t *Transmit) bool {
	i, k, ok := r.locate(psn)
	if !ok || r.At(i).status != StatusSuccess {
		return false
	}
	if !r.overdue && r.q.peering != nil && r.rec.InFlight() >= r.q.maxUnacked() {
		return false
	}
	window, _ := r.limits()
	if !r.overdue && r.acks.pending() && r.rec.InFlight() > 0 && uint64(r.bytesInFlight()) >= window {
		return false
	}
	return r.pace.Ready(now) && r.resend(now, i, k, t)
}

// resend retransmits packet k of request i.
func (r *requester) resend(now mono.Time, i, k uint32, t *Transmit) bool {
	s := r.At(i)
	if !r.fill(s, k, t) {
		r.unreadable(now, i)
		return false
	}
	r.policy.stamp(now, s, k, true, &t.Packet)
	psn, span := s.first.Add(int(k)), uint32(1)
	if s.kind.responds() {
		span = s.span - k
		s.split = s.split || k > 0
	}
	r.lastResent, r.overdue, t.Snapshot = i, false, true
	r.rec.OnSent(now, psn, span, true)
	r.q.traceSent(now, &t.Packet, span, true)
	t.Packet.AckReq = s.kind.responds() || r.policy.requestsAck(now, false, true)
	r.recordAckReq(now, psn.Add(int(span)-1), t.Packet.AckReq)
	r.q.ctr.RetransmittedPackets++
	r.account(now, &t.Packet)
	return true
}
