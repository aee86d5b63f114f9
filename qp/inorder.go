package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// inOrder is the admission of standard RC: it takes the expected packet only. A MIDDLE or LAST packet continues the
// message of the packet before it.
type inOrder struct {
	r   *responder
	trk *reorder.Strict
	msg message

	// Answers that wait for poll. They leave in PSN order: an acknowledgement must not overtake a READ response
	// before it, which would be an implied NAK (IBTA vol.1 9.7.5.1.2). A NAK acknowledges all earlier packets as
	// well.
	ack      bool
	ackPSN   bth.PSN
	syndrome bth.Syndrome // of the NAK; 0 = none
	nakPSN   bth.PSN
	rd       rdQueue
	nakAt    mono.Time
	highest  bth.PSN // the highest PSN dropped behind the present gap
	gap      bool    // the gap has been reported (9.7.5.2.8)
	rnr      bool    // the expected request has been refused as not ready
}

// message is the multi-packet request being received.
type message struct {
	active   bool
	write    bool
	va       uint64 // WRITE: address of the next packet
	rkey     uint32
	left     uint32 // WRITE: bytes still to come
	received uint32 // bytes received
}

func (a *inOrder) start(bth.PSN) {}
func (a *inOrder) reset()        { *a = inOrder{r: a.r, trk: a.trk} }

func (a *inOrder) flush() {
	if a.msg.active = false; !a.r.lastNAK {
		a.ack, a.syndrome = false, 0
		a.rd = rdQueue{}
	}
}

// admit implements admission (IBTA vol.1 9.7.4).
func (a *inOrder) admit(now mono.Time, p *bth.Packet, _ arrival, t *target) verdict {
	switch a.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		a.r.q.ctr.DuplicateRequest++
		return verdict{drop: a.duplicate(p)}
	case reorder.Beyond, reorder.Held:
		return verdict{drop: a.outOfOrder(now, p)}
	}
	a.rnr = false
	// FIRST or ONLY begin a message, MIDDLE or LAST continue one of their kind (9.7.4.1.3).
	if a.msg.active == p.Opcode.Starts() {
		return verdict{step: stepExecute, refusal: badSequence}
	}
	return a.locate(p, t)
}

// locate sets t to the place of the payload of p.
func (a *inOrder) locate(p *bth.Packet, t *target) verdict {
	switch m := &a.msg; {
	case p.Opcode.Starts():
		t.va, t.rkey, t.left, t.check = p.RETH.VA, p.RETH.RKey, p.RETH.Length, p.RETH.Length
	case m.write != p.Opcode.IsWrite():
		return verdict{step: stepExecute, refusal: badSequence}
	default:
		t.off, t.va, t.rkey, t.left = m.received, m.va, m.rkey, m.left
	}
	return verdict{step: stepExecute}
}

// commit implements admission. SEND and WRITE are acknowledged on request; other requests have a response.
func (a *inOrder) commit(p *bth.Packet, _ arrival, t *target, _ verdict) {
	a.advance(p, t)
	if p.AckReq && (p.Opcode.IsSend() || p.Opcode.IsWrite()) {
		a.wantAck(p.PSN)
	}
}

// refuse implements admission.
func (*inOrder) refuse(*bth.Packet, arrival, verdict) bool { return true }

// advance records that p has been executed; a READ takes as many PSNs as it has responses. A NAK that requests p and has
// not left is obsolete. If the next packet was dropped too, the NAK requests that one.
func (a *inOrder) advance(p *bth.Packet, t *target) {
	n := uint32(len(p.Payload))
	a.msg = message{!p.Opcode.Ends(), p.Opcode.IsWrite(), t.va + uint64(n), t.rkey, t.left - n, t.off + n}
	trk := a.trk
	span := uint32(1)
	if p.Opcode.IsReadRequest() {
		span = packets(p.RETH.Length, a.r.q.mtu)
	}
	trk.Advance(span)
	a.rd.expire(trk.Expected())
	if a.syndrome == bth.SyndromePSNSeqErr && !a.highest.Before(trk.Expected()) {
		a.nakPSN = trk.Expected()
	} else {
		a.syndrome, a.gap = 0, false
	}
}

// outOfOrder drops a request beyond the expected one. One NAK answers each gap, until the expected packet arrives
// (IBTA vol.1 9.7.5.2.8), unless the tracker repeats NAKs. Behind a request refused as not ready, the responder
// itself caused the gap and sends no NAK.
func (a *inOrder) outOfOrder(now mono.Time, p *bth.Packet) Drop {
	a.r.q.ctr.OutOfSeqRequest++
	a.r.q.ctr.OutOfSequence++
	a.trk.Commit(p.PSN, reorder.Beyond)
	switch {
	case a.rnr:
	case !a.gap && !a.pacesNAK(now) || a.repeatsNAK(now):
		if !a.gap || p.PSN.After(a.highest) {
			a.highest = p.PSN
		}
		a.gap, a.nakAt = true, now
		a.r.q.np.reordered(now)
		a.nak(bth.SyndromePSNSeqErr, a.trk.Expected())
	case p.PSN.After(a.highest):
		a.highest = p.PSN
	}
	return DropOutOfOrder
}

// repeatsNAK reports whether the NAK of the present gap must be repeated.
func (a *inOrder) repeatsNAK(now mono.Time) bool {
	interval := a.trk.NAKInterval()
	return interval > 0 && now.Sub(a.nakAt) >= interval
}

// pacesNAK reports whether the NAK of a new gap must wait because a NAK was sent just before. A later packet triggers
// it.
func (a *inOrder) pacesNAK(now mono.Time) bool {
	return a.trk.NAKPaced() && a.nakAt != 0 && now.Sub(a.nakAt) < a.trk.NAKInterval()
}

// nak implements admission.
func (a *inOrder) nak(s bth.Syndrome, psn bth.PSN) {
	a.syndrome, a.nakPSN, a.rnr = s, psn, s.IsRNR()
}

// wantAck schedules an acknowledgement; acknowledgements of several requests coalesce.
func (a *inOrder) wantAck(psn bth.PSN) {
	if a.ack {
		a.r.q.ctr.AckDeferred++
		if psn.Before(a.ackPSN) {
			return
		}
	}
	a.ack, a.ackPSN = true, psn
}

// requestsFirst implements admission. A mere acknowledgement lets requests go first, so that it can be the last packet
// of their super-frame, unless its message has woken a program.
func (a *inOrder) requestsFirst() int {
	switch {
	case a.syndrome != 0 || a.rd.due > 0:
		return 1
	case !a.ack:
		return nothingDue
	case a.r.urgent:
		return 0
	}
	return int(a.r.q.cfg.Tuning.AckBehind)
}

// poll implements admission.
func (a *inOrder) poll(now mono.Time, t *Transmit) bool {
	r := a.r
	if r.q.state < RTR || r.q.state == Err && !r.lastNAK {
		return false
	}
	for res := a.rd.next(); res != nil; res = a.rd.next() {
		// READ responses are data and share the rate of the queue pair. No window limits them because the
		// requester does not acknowledge them.
		paced := r.q.sending() && !res.atomic
		if paced && !r.q.req.pace.Ready(now) {
			return false
		}
		if a.respondNext(t, res) {
			t.Packet.BECN = r.q.takeEcho()
			if paced {
				r.q.req.account(now, &t.Packet)
			}
			r.q.traceSent(now, &t.Packet, 1, false) // it has the PSN of its request
			return true
		}
		if r.q.Blocked() {
			return false
		}
		if res.answered {
			// Probably a late duplicate: the peer has its data, and the program has invalidated the key since.
			a.rd.done(res)
			continue
		}
		a.rd = rdQueue{}
		a.refuseRead(now, res)
	}
	switch {
	case a.syndrome != 0:
		a.acknowledge(t, a.syndrome, a.nakPSN)
		return true
	case a.ack:
		a.acknowledge(t, bth.SyndromeACK, a.ackable())
		return true
	}
	return false
}

// respondNext builds the next response to res. It fails if the memory may no longer be read.
func (a *inOrder) respondNext(t *Transmit, res *resource) bool {
	if res.atomic {
		a.rd.done(res)
		a.r.q.header(&t.Packet, bth.OpAtomicAck, res.first)
		t.Packet.AtomicAck = res.orig
	} else if !a.readResponse(t, res) {
		return false
	}
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: res.msn}
	if a.ack && a.ackPSN.Before(res.first) {
		a.ack, a.r.urgent = false, false // the response acknowledges all before it
		a.r.q.ctr.AckDeferred++
	}
	return true
}

// readResponse builds the next response packet of a READ.
func (a *inOrder) readResponse(t *Transmit, res *resource) bool {
	q, k, mtu := a.r.q, res.next, a.r.q.mtu
	data, ok := q.readRemote(res.rkey, res.va, k*mtu, res.end)
	if !ok {
		return false
	}
	last := k*mtu+uint32(len(data)) == res.end
	q.header(&t.Packet, readResponseOp(k == res.start, last), res.first.Add(int(k)))
	t.Packet.Payload, t.Snapshot = data, res.answered || res.start > 0 || k == 0 && last
	if res.next++; last {
		a.rd.done(res)
	}
	return true
}

// readRemote returns the payload of one READ response: at most an MTU from va+done on, up to va+end. If the memory is not
// available yet, it blocks q.
func (q *QP) readRemote(rkey uint32, va uint64, done, end uint32) ([]byte, bool) {
	n := min(q.mtu, end-done)
	if n == 0 {
		return nil, true
	}
	data, ok := q.host.ReadRemote(rkey, va+uint64(done), int(n), end-done-n)
	if !ok {
		q.block()
	}
	return data, ok
}

// readResponseOp returns the opcode of a response that is the first, the last, both or neither.
func readResponseOp(first, last bool) bth.Opcode {
	switch {
	case first && last:
		return bth.OpReadRespOnly
	case first:
		return bth.OpReadRespFirst
	case last:
		return bth.OpReadRespLast
	}
	return bth.OpReadRespMiddle
}

// ackable returns the PSN of the acknowledgement that waits: the last PSN executed, or the last one before a READ or
// atomic behind ackPSN. That request has been answered, but its answer may be lost or late. The peer would take an
// acknowledgement of it or of a later PSN for an implied NAK (IBTA vol.1 9.7.5.1.2). Linux's rxe takes an
// acknowledgement with its very PSN for the answer, and completes the READ without data.
func (a *inOrder) ackable() bth.PSN {
	psn := a.trk.Expected().Add(-1)
	for i := a.rd.Tail; i != a.rd.Head && a.rd.At(i-1).first.After(a.ackPSN); i-- {
		psn = a.rd.At(i - 1).first.Add(-1)
	}
	return psn
}

// acknowledge builds an ACK or NAK. Both acknowledge all earlier packets.
func (a *inOrder) acknowledge(t *Transmit, s bth.Syndrome, psn bth.PSN) {
	a.ack, a.r.urgent, a.syndrome = false, false, 0
	a.r.q.header(&t.Packet, bth.OpAcknowledge, psn)
	t.Packet.BECN = a.r.q.takeEcho()
	t.Packet.AETH = bth.AETH{Syndrome: s, MSN: a.r.msn}
}

// refuseRead breaks the queue pair because a region was removed while a READ was being answered. The NAK names the
// response that cannot be sent.
func (a *inOrder) refuseRead(now mono.Time, res *resource) {
	a.r.q.ctr.RespRemoteAccessErrors++
	psn := res.first.Add(int(res.next))
	if a.r.q.state != Err {
		a.r.fail(now, psn, true, badAccess)
	}
	a.nak(badAccess.nak, psn)
	a.r.lastNAK = true
}
