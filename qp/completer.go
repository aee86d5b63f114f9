package qp

import (
	"encoding/binary"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// receive implements framing: the responses to a request have its PSNs. Packets with PSNs outside
// of what is outstanding are stale, of earlier exchanges, and are ignored (IBTA vol.1 9.7.5.1.2).
func (r *requester) receive(now mono.Time, p *bth.Packet, _ arrival) Drop {
	if !r.q.sending() || r.rec == nil {
		return DropState
	}
	if distance(r.una, p.PSN) >= r.outstanding() {
		return DropStaleAck
	}
	if p.Opcode.IsAck() {
		return r.onAck(now, p)
	}
	return r.onResponse(now, p)
}

// onAck handles ACK, RNR NAK and NAK (IBTA vol.1 9.7.5.1, 9.7.5.2). The MSN is
// not needed: without end-to-end credits it says nothing that the PSN does not.
func (r *requester) onAck(now mono.Time, p *bth.Packet) Drop {
	s := p.AETH.Syndrome
	switch {
	case s.IsACK():
		if !r.acknowledge(now, p.PSN.Next(), p) {
			return DropOutOfOrder
		}
		return Accepted
	case s.IsRNR():
		return r.onRNR(now, p)
	case s.IsNAK():
		return r.onNAK(now, p)
	}
	return DropOpcode
}

// onNAK handles NAKs. Their PSN is that of the packet refused; all before it is
// acknowledged.
func (r *requester) onNAK(now mono.Time, p *bth.Packet) Drop {
	c := r.q.ctr
	switch p.AETH.Syndrome {
	case bth.SyndromePSNSeqErr:
		c.RcvdSeqErr++
		c.PacketSeqErr++
		if r.acknowledge(now, p.PSN, p) {
			r.say(now, p.PSN, true, p)
		}
	case bth.SyndromeInvalidRequest:
		c.ReqRemoteInvalidRequest++
		r.refused(now, p, StatusRemInvReqErr)
	case bth.SyndromeRemoteAccessErr:
		c.ReqRemoteAccessErrors++
		r.refused(now, p, StatusRemAccessErr)
	case bth.SyndromeRemoteOpErr:
		r.refused(now, p, StatusRemOpErr)
	default:
		return DropOpcode
	}
	return Accepted
}

// refused completes the request to which p's PSN belongs in error, after all
// before it (IBTA vol.1 9.9.3).
func (r *requester) refused(now mono.Time, p *bth.Packet, status Status) {
	if !r.acknowledge(now, p.PSN, p) || !r.q.sending() {
		return
	}
	if i, _, ok := r.locate(p.PSN); ok {
		r.broken(now, r.At(i), status, Accepted)
		return
	}
	r.fail(now, status)
}

// broken ends the queue pair over the answer to s. What stands before s in the queue is
// flushed with the rest: it is not done.
func (r *requester) broken(now mono.Time, s *slot, status Status, d Drop) Drop {
	for r.Head != r.Tail && r.At(r.Head) != s {
		r.end(StatusWRFlushErr)
	}
	r.fail(now, status)
	return d
}

// misplaced ends the queue pair over a response to s that is wrong or cannot be placed.
func (r *requester) misplaced(now mono.Time, s *slot, d Drop) Drop {
	if d == DropAccess {
		return r.broken(now, s, StatusLocProtErr, d)
	}
	return r.broken(now, s, StatusBadRespErr, d)
}

// onRNR waits as long as the responder asks for (IBTA vol.1 9.7.5.2.8). A NAK for
// a packet that has not been sent again since the last one is a copy of that.
func (r *requester) onRNR(now mono.Time, p *bth.Packet) Drop {
	if psn, again := r.rec.NextRetransmit(); r.rnrUntil != 0 || again && psn == p.PSN {
		return DropStaleAck
	}
	r.q.ctr.RcvdRNRErr++
	if !r.acknowledge(now, p.PSN, p) || !r.q.sending() {
		return Accepted
	}
	if r.q.attr.RNRRetry != 7 {
		if r.rnrRetries == 0 {
			r.q.ctr.RetryRNRExceededErr++
			r.fail(now, StatusRNRRetryExcErr)
			return Accepted
		}
		r.rnrRetries--
	}
	// Everything from the refused packet on has been ignored by the responder and
	// is sent again, once the wait is over.
	r.rec.OnRNR(now)
	r.ask.lost()
	r.timer.running = false
	r.q.ctr.CompleterRetry++
	r.rnrUntil = now.Add(time.Duration(rnrTimer(p.AETH.Syndrome.Value())))
	// The path works. Without this a wait of many turns, which rnr_retry allows, would end by
	// retry_cnt when each turn loses something.
	r.answered(r.rnrUntil)
	return Accepted
}

// acknowledge takes all PSNs before end as executed by the responder. If a READ
// or atomic is among them whose response has not come, that has been lost: the
// acknowledgement implies a NAK for it (IBTA vol.1 9.7.5.1.3). It returns false
// in that case.
func (r *requester) acknowledge(now mono.Time, end bth.PSN, p *bth.Packet) bool {
	if s := r.unanswered(end); s != nil {
		r.implyNAK(now, s, p)
		return false
	}
	r.say(now, end, false, p)
	return true
}

func (r *requester) implyNAK(now mono.Time, s *slot, p *bth.Packet) {
	if r.say(now, r.wanted(s), true, p) {
		r.q.ctr.ImpliedNAKSeqErr++
	}
}

// unanswered returns the oldest READ or atomic with PSNs before end whose
// response is not complete.
func (r *requester) unanswered(end bth.PSN) *slot {
	if !r.frame.awaits() {
		return nil
	}
	first := r.At(r.Head).first // a READ is outstanding
	for i := range r.begun() {
		s := r.At(r.Head + i)
		switch {
		case distance(first, s.first) >= distance(first, end):
			return nil
		case s.kind.responds() && distance(r.una, r.wanted(s)) < distance(r.una, end):
			return s
		case s.kind.responds():
			return nil
		}
	}
	return nil
}

// wanted is the PSN of the next response to s that is missing.
func (r *requester) wanted(s *slot) bth.PSN {
	if distance(s.first, r.una) < s.span {
		return r.una
	}
	return s.first
}

// onResponse places a READ response (IBTA vol.1 9.7.5.1.1, 9.7.5.1.3) or the value of an
// atomic.
func (r *requester) onResponse(now mono.Time, p *bth.Packet) Drop {
	again := r.placed
	r.placed = false
	s := r.unanswered(p.PSN.Next())
	if s == nil {
		return DropOpcode // not the PSN of a READ
	}
	if r.wanted(s) != p.PSN {
		r.q.ctr.OutOfSequence++
		r.implyNAK(now, s, p)
		return DropOutOfOrder
	}
	k := distance(s.first, p.PSN)
	d := Accepted
	if !again {
		d = r.placeResponse(s, k, s.span, p)
	}
	if d == Accepted && k+1 == s.span && !r.q.host.Sync() {
		if d = DropAccess; r.q.host.Later() {
			d = Later
		}
	}
	r.placed = d == Later
	switch d {
	case Later:
	case Accepted:
		r.say(now, p.PSN.Next(), false, p)
	default:
		r.say(now, p.PSN, false, p)
		if r.q.sending() {
			r.misplaced(now, s, d)
		}
	}
	return d
}

// placeResponse checks response k of n to s and puts its data where it belongs.
func (r *requester) placeResponse(s *slot, k, n uint32, p *bth.Packet) Drop {
	data, off := p.Payload, k*r.q.mtu
	switch {
	case p.Opcode.HasAETH() && !p.AETH.Syndrome.IsACK():
		return DropOpcode
	case s.kind == kindAtomic:
		if !p.Opcode.IsAtomicAck() {
			return DropOpcode
		}
		data = r.q.scratch.word[:] // in host byte order (IBTA vol.1 9.4.5)
		binary.NativeEndian.PutUint64(data, p.AtomicAck)
	case !p.Opcode.IsReadResponse() || !readOpcodeFits(p.Opcode, k, n, s.split):
		return DropOpcode
	case len(data) != int(min(s.wqe.Length-off, r.q.mtu)):
		return DropLength
	}
	if scatter(r.q.host, s.wqe.SGEs, off, data) {
		return Accepted
	}
	return DropAccess
}

// readOpcodeFits reports whether op is right for response k of n to a READ. Asked for
// again from its middle (split), a READ is answered by FIRST or ONLY there; as responses
// to the earlier request may still come, both are right then.
func readOpcodeFits(op bth.Opcode, k, n uint32, split bool) bool {
	starts := k == 0 || split && (op.IsFirst() || op.IsOnly())
	ends := k+1 == n
	switch {
	case starts && ends:
		return op.IsOnly()
	case starts:
		return op.IsFirst()
	case ends:
		return op.IsLast()
	}
	return op.IsMiddle()
}

// say gives the feedback that all before expected has arrived, and, with gap, that it has not.
func (r *requester) say(now mono.Time, expected bth.PSN, gap bool, p *bth.Packet) bool {
	r.q.scratch.said = reorder.Feedback{Expected: expected, Gap: gap}
	return r.feedback(now, &r.q.scratch.said, p)
}

// feedback hands what p says to the recovery and acts on the outcome. It
// returns whether that found something lost.
func (r *requester) feedback(now mono.Time, f *reorder.Feedback, p *bth.Packet) bool {
	if !r.q.sending() {
		return false
	}
	out := r.sender.feedback(now, f)
	if out.Acked > 0 {
		r.progress(now)
	}
	if !r.each && !r.free {
		r.ctl.OnAck(now, ccalgo.Sample{
			Bytes:    r.newlyAcked(out),
			InFlight: r.bytesInFlight(),
			RTT:      r.q.scratch.rtt,
			ECN:      p.BECN || f.ECE,
		})
	}
	if out.Acked > 0 {
		r.retire(now)
	}
	if out.Lost > 0 && r.q.sending() {
		r.missing(now, out.Lost, false)
	}
	return out.Lost > 0
}

// progress follows una: requests complete, and the retry counters begin anew
// (IBTA vol.1 9.9.2.1).
func (r *requester) progress(now mono.Time) {
	r.heard(r.q.scratch.rtt)
	r.answered(now)
	r.rnrRetries, r.rnrUntil = r.q.attr.RNRRetry, 0
	r.ask.acked(r.una, r.nxt)
	r.retireDone(now)
}

// answered lets retries, and the time that the peer has, begin anew at an instant.
func (r *requester) answered(at mono.Time) {
	r.since, r.retries = at, r.q.attr.RetryCnt
}

// newlyAcked returns the bytes that are known to have arrived by an acknowledgement. What
// selective ones have told of does not count again when una passes it; how much that is,
// they tell in packets.
func (r *requester) newlyAcked(out retrans.Outcome) uint32 {
	total := r.acked()
	n := total - r.payloadAcked
	r.payloadAcked = total
	if out.Acked == 0 {
		n = min(uint64(out.Delivered)*uint64(r.q.mtu), r.payloadSent-total-min(r.payloadSent-total, r.credited))
		r.credited += n
		return uint32(n)
	}
	known := min(n, r.credited)
	r.credited -= known
	return uint32(n - known)
}

// acked is how much of the payload sent lies before una.
func (r *requester) acked() uint64 {
	if int32(r.reached-r.Head) < 0 {
		r.reached = r.Head
	}
	for r.reached != r.cursor && distance(r.At(r.reached).first, r.una) >= r.At(r.reached).span {
		r.reached++ // a READ that is not answered keeps its place
	}
	if r.reached == r.Tail {
		return r.payloadSent
	}
	s := r.At(r.reached)
	switch {
	case s.sent == 0:
		return r.payloadSent
	case s.kind != kindData:
		return s.stream
	}
	return s.stream + min(uint64(distance(s.first, r.una))*uint64(r.q.mtu), uint64(s.wqe.Length))
}

// missing handles a loss.
func (r *requester) missing(now mono.Time, packets uint32, timeout bool) {
	r.lost(now, packets, timeout)
	r.frame.missed(now)
}

// missed implements framing: one retry is used up (IBTA vol.1 9.9.2.4).
func (r *requester) missed(now mono.Time) {
	r.ask.lost()
	r.spendRetry(now)
}

// spendRetry uses a retry up. Without one the peer is given up.
func (r *requester) spendRetry(now mono.Time) {
	if r.retries == 0 {
		r.q.ctr.RetryExceededErr++
		r.fail(now, StatusRetryExcErr)
		return
	}
	r.retries--
}
