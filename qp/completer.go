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

// onNAK handles RNR NAKs and NAKs (IBTA vol.1 9.7.5.1, 9.7.5.2). Their PSN is that of the refused packet; they
// acknowledge all packets before it. The MSN is not needed: without end-to-end credits the PSN implies it.
func (r *requester) onNAK(now mono.Time, p *bth.Packet) Drop {
	c := r.q.ctr
	if p.AETH.Syndrome.IsRNR() {
		return r.onRNR(now, p)
	}
	switch p.AETH.Syndrome {
	case bth.SyndromePSNSeqErr:
		c.RcvdSeqErr++
		c.PacketSeqErr++
		if r.acknowledge(now, p.PSN, p) {
			r.cumulative(now, p.PSN, true, p)
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

// refused completes the request to which the PSN of p belongs in error, after all requests before it (IBTA vol.1
// 9.9.3).
func (r *requester) refused(now mono.Time, p *bth.Packet, status Status) {
	if !r.acknowledge(now, p.PSN, p) || !r.q.sending() {
		return
	}
	if i, _, ok := r.locate(p.PSN); ok {
		r.failRequest(now, r.At(i), status, Accepted)
		return
	}
	r.fail(now, status)
}

// failRequest breaks the queue pair because of the answer to s. It flushes the requests before s too, because they are
// not complete.
func (r *requester) failRequest(now mono.Time, s *slot, status Status, d Drop) Drop {
	for r.Head != r.Tail && r.At(r.Head) != s {
		r.end(StatusWRFlushErr)
	}
	r.fail(now, status)
	return d
}

// badResponse breaks the queue pair because a response to s is wrong or its data cannot be placed.
func (r *requester) badResponse(now mono.Time, s *slot, d Drop) Drop {
	if d == DropAccess {
		return r.failRequest(now, s, StatusLocProtErr, d)
	}
	return r.failRequest(now, s, StatusBadRespErr, d)
}

// onRNR waits for the time that the responder requests (IBTA vol.1 9.7.5.2.8). A second NAK for a packet that has not
// been retransmitted since is a duplicate of the first.
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
	// The responder has ignored all packets from the refused one on. They are retransmitted after the wait.
	r.rec.OnRNR(now)
	r.acks.onLoss()
	r.timer.stop()
	r.q.ctr.CompleterRetry++
	r.rnrUntil = now.Add(time.Duration(rnrTimer(p.AETH.Syndrome.Value())))
	// An RNR NAK shows that the path works, so the retries restart. Otherwise a lost packet in each of the many RNR waits
	// that rnr_retry allows would use them up.
	r.restartRetries(r.rnrUntil)
	return Accepted
}

// acknowledge records that the responder has executed all PSNs before end. If the response to a READ or atomic among
// them is missing, it is lost, and acknowledge returns false: the acknowledgement implies a NAK (IBTA vol.1
// 9.7.5.1.3).
func (r *requester) acknowledge(now mono.Time, end bth.PSN, p *bth.Packet) bool {
	if s := r.unanswered(end); s != nil {
		r.implyNAK(now, s, p)
		return false
	}
	r.cumulative(now, end, false, p)
	return true
}

func (r *requester) implyNAK(now mono.Time, s *slot, p *bth.Packet) {
	if r.cumulative(now, r.wanted(s), true, p) {
		r.q.ctr.ImpliedNAKSeqErr++
	}
}

// unanswered returns the oldest READ or atomic with PSNs before end whose response is not complete.
func (r *requester) unanswered(end bth.PSN) *slot {
	if !r.policy.acksFollowResponses() {
		return nil
	}
	first := r.At(r.Head).first // a READ is outstanding
	for i := range r.begun() {
		s := r.At(r.Head + i)
		switch {
		case s.first.Since(first) >= end.Since(first):
			return nil
		case s.kind.responds() && r.wanted(s).Since(r.una) < end.Since(r.una):
			return s
		case s.kind.responds():
			return nil
		}
	}
	return nil
}

// wanted returns the PSN of the next missing response to s.
func (r *requester) wanted(s *slot) bth.PSN {
	if r.una.Since(s.first) < s.span {
		return r.una
	}
	return s.first
}

// onResponse places a READ response (IBTA vol.1 9.7.5.1.1, 9.7.5.1.3) or the value of an atomic.
func (r *requester) onResponse(now mono.Time, p *bth.Packet) Drop {
	placed := r.memory.retried()
	s := r.unanswered(p.PSN.Next())
	if s == nil {
		return DropOpcode // not the PSN of a READ
	}
	if r.wanted(s) != p.PSN {
		r.q.ctr.OutOfSequence++
		r.implyNAK(now, s, p)
		return DropOutOfOrder
	}
	k := p.PSN.Since(s.first)
	d := Accepted
	if !placed {
		if d = r.placeResponse(s, k, s.span, p); d == Later {
			return d
		}
	}
	r.memory.wrote()
	if d == Accepted && k+1 == s.span {
		if ok, later := r.memory.sync(r.q.host); later {
			return Later
		} else if !ok {
			d = DropAccess
		}
	}
	if d == Accepted {
		r.cumulative(now, p.PSN.Next(), false, p)
	} else if r.cumulative(now, p.PSN, false, p); r.q.sending() {
		r.badResponse(now, s, d)
	}
	return d
}

// placeResponse checks response k of n to s and places its data.
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
	switch {
	case scatter(r.q.host.WriteLocal, s.wqe.SGEs, off, data):
		return Accepted
	case r.q.host.Later():
		return Later
	}
	return DropAccess
}

// readOpcodeFits reports whether op is valid for response k of n to a READ. The answer to a READ that was
// retransmitted from its middle (split) begins there with FIRST or ONLY. Responses to the earlier request may still
// arrive, so both opcodes are valid.
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

// cumulative reports to the recovery that all packets before expected have arrived and, with gap, that expected has not.
func (r *requester) cumulative(now mono.Time, expected bth.PSN, gap bool, p *bth.Packet) bool {
	r.q.scratch.feedback = reorder.Feedback{Expected: expected, Gap: gap}
	return r.feedback(now, &r.q.scratch.feedback, p, 0).Lost > 0
}

// feedback passes the acknowledgement p to the recovery and handles the outcome. rtt is the round-trip time by its
// timestamp, zero without one.
func (r *requester) feedback(now mono.Time, f *reorder.Feedback, p *bth.Packet, rtt time.Duration) (out retrans.Outcome) {
	if !r.q.sending() {
		return out
	}
	out = r.sender.feedback(now, f, rtt)
	if out.Acked > 0 {
		r.progress(now)
	}
	if !r.perPacket && r.control != noControl {
		r.ctl.OnAck(now, ccalgo.Sample{
			Bytes:    r.newlyAcked(out),
			InFlight: r.bytesInFlight(),
			RTT:      r.q.scratch.rtt,
			ECN:      p.BECN || f.ECE,
			Receiver: f.Receiver,
		})
	}
	if out.Acked > 0 {
		r.retire(now)
	}
	if out.Lost > 0 && r.q.sending() {
		r.onLoss(now, out.Lost, false)
	}
	return out
}

// progress is called when una has moved: requests complete, and the retry counters restart (IBTA vol.1 9.9.2.1).
func (r *requester) progress(now mono.Time) {
	r.policy.onProgress(r.q.scratch.rtt)
	r.restartRetries(now)
	r.rnrRetries, r.rnrUntil = r.q.attr.RNRRetry, 0
	r.acks.onAck(r.una, r.nxt)
	r.retireDone(now)
}

// restartRetries restarts the retry counter and the peer's response time at an instant.
func (r *requester) restartRetries(at mono.Time) {
	r.since, r.retries = at, r.q.attr.RetryCnt
	r.onAnswer()
}

// newlyAcked returns the bytes that an acknowledgement reports for the first time. Bytes reported by selective
// acknowledgements do not count again when una passes them; their number is estimated from their packets.
func (r *requester) newlyAcked(out retrans.Outcome) uint32 {
	total := r.acked()
	n := total - r.payloadAcked
	r.payloadAcked = total
	if out.Acked == 0 {
		n = min(uint64(out.Delivered)*uint64(r.q.mtu), r.payloadSent-total-min(r.payloadSent-total, r.payloadSACKed))
		r.payloadSACKed += n
		return uint32(n)
	}
	known := min(n, r.payloadSACKed)
	r.payloadSACKed -= known
	return uint32(n - known)
}

// acked returns the number of bytes of payload sent before una.
func (r *requester) acked() uint64 {
	if int32(r.ackedUntil-r.Head) < 0 {
		r.ackedUntil = r.Head
	}
	for r.ackedUntil != r.cursor && r.una.Since(r.At(r.ackedUntil).first) >= r.At(r.ackedUntil).span {
		r.ackedUntil++
	}
	if r.ackedUntil == r.Tail {
		return r.payloadSent
	}
	s := r.At(r.ackedUntil)
	switch {
	case s.sent == 0:
		return r.payloadSent
	case s.kind != kindData:
		return s.stream
	}
	return s.stream + min(uint64(r.una.Since(s.first))*uint64(r.q.mtu), uint64(s.wqe.Length))
}

// onLoss handles a loss.
func (r *requester) onLoss(now mono.Time, packets uint32, timeout bool) {
	r.lost(now, packets, timeout)
	if timeout {
		r.backOff()
	}
	r.policy.onLoss(now)
}

// useRetry uses a retry. If none is left, the queue pair gives up and breaks.
func (r *requester) useRetry(now mono.Time) {
	if r.q.cfg.UnlimitedRetries {
		return
	}
	tolerant := r.q.toleratesSilence(now)
	if r.retries == 0 && tolerant {
		return
	}
	if r.retries == 0 {
		r.q.ctr.RetryExceededErr++
		r.fail(now, StatusRetryExcErr)
		return
	}
	r.retries--
}
