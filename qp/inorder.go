package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// inOrder is the admission of standard transports: the expected packet is executed at once,
// no other is. What a packet leaves unsaid, the one before it has said.
type inOrder struct {
	r   *responder
	trk *reorder.Strict
	msg message

	// Answers that wait for poll. They leave in PSN order: an acknowledgement
	// must not overtake a READ response before it, which would be an implied NAK
	// (IBTA vol.1 9.7.5.1.2). A NAK acknowledges all before it as well.
	ack      bool
	ackPSN   bth.PSN
	syndrome bth.Syndrome // of the NAK; 0 = none
	nakPSN   bth.PSN
	rd       rdQueue
	nakAt    mono.Time
	highest  bth.PSN // the highest PSN that was dropped behind the present gap
	gap      bool    // it has been reported (9.7.5.2.8)
	rnr      bool    // the expected request has been refused as not ready
}

// message is the multi-packet request being received.
type message struct {
	active bool
	write  bool
	va     uint64 // WRITE: where the next packet goes
	rkey   uint32
	left   uint32 // WRITE: bytes still to come
	got    uint32 // bytes received
}

func (a *inOrder) start(bth.PSN)    {}
func (a *inOrder) resume(mono.Time) {}
func (a *inOrder) reset()           { *a = inOrder{r: a.r, trk: a.trk} }

func (a *inOrder) flush() {
	if a.msg.active = false; !a.r.lastWord {
		a.ack, a.syndrome = false, 0
		a.rd = rdQueue{}
	}
}

// receive takes a request of a reliable connection (IBTA vol.1 9.7.4).
func (a *inOrder) receive(now mono.Time, p *bth.Packet, _ arrival) Drop {
	r := a.r
	if r.q.cfg.Type == UC {
		return a.receiveUC(now, p)
	}
	switch a.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		r.q.ctr.DuplicateRequest++
		return a.duplicate(p)
	case reorder.Beyond, reorder.Held:
		return a.outOfOrder(now, p)
	}
	a.rnr = false
	if f := a.execute(p); f != nil {
		return r.refuse(now, p.PSN, true, f)
	}
	return Accepted
}

// execute carries out the expected request.
func (a *inOrder) execute(p *bth.Packet) *refusal {
	var t target
	if f := a.take(p, &t); f != nil {
		return f
	}
	span := uint32(1)
	if p.Opcode.Ends() {
		var e effect
		e.set(p, t.off)
		lost := badBuffer
		if p.Opcode.IsWrite() {
			lost = badWrite(p.Opcode)
		}
		if f := a.r.sync(lost); f != nil {
			return f
		}
		if f := a.r.complete(&e); f != nil {
			return f
		}
		if p.Opcode.IsReadRequest() {
			span = packets(e.length, a.r.q.mtu)
		}
	}
	a.advance(p, &t, span)
	if p.AckReq && a.r.q.cfg.Type == RC && (p.Opcode.IsSend() || p.Opcode.IsWrite()) {
		a.wantAck(p.PSN)
	}
	return nil
}

// take places the payload of p.
func (a *inOrder) take(p *bth.Packet, t *target) *refusal {
	o, r := p.Opcode, a.r
	again := r.again()
	// FIRST or ONLY begin a message, MIDDLE or LAST continue one of their kind (9.7.4.1.3).
	if a.msg.active == o.Starts() || a.msg.active && a.msg.write != o.IsWrite() {
		return badSequence
	}
	if o.Starts() {
		t.va, t.rkey, t.left, t.check = p.RETH.VA, p.RETH.RKey, p.RETH.Length, p.RETH.Length
	} else {
		t.off, t.va, t.rkey, t.left = a.msg.got, a.msg.va, a.msg.rkey, a.msg.left
	}
	if f := r.validate(p, t); f != nil {
		return f
	}
	if consumes(o) {
		if t.recv = r.nextRecv(); t.recv == nil {
			return notReady
		}
	}
	if again {
		return nil
	}
	return r.place(p, t)
}

// advance records that a request packet has been executed, which takes span PSNs. A NAK
// that has not left yet is overtaken by the packet it asks for; that of a gap then asks for
// the next packet if that has been dropped too.
func (a *inOrder) advance(p *bth.Packet, t *target, span uint32) {
	n := uint32(len(p.Payload))
	if p.Opcode.IsWrite() && p.Opcode.Starts() {
		a.r.q.ctr.RxWriteRequests++
	}
	m := &a.msg
	m.active, m.write = !p.Opcode.Ends(), p.Opcode.IsWrite()
	m.va, m.rkey, m.left, m.got = t.va+uint64(n), t.rkey, t.left-n, t.off+n
	trk := a.trk
	trk.Advance(span)
	a.rd.expire(trk.Expected())
	if a.syndrome == bth.SyndromePSNSeqErr && !a.highest.Before(trk.Expected()) {
		a.nakPSN = trk.Expected()
	} else {
		a.syndrome, a.gap = 0, false
	}
}

// outOfOrder drops a request beyond the expected one. Each gap is answered by
// one NAK, until the expected packet arrives (IBTA vol.1 9.7.5.2.8), unless the tracker
// wants it repeated; behind a request refused as not ready the gap is of our own making.
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
		a.nak(bth.SyndromePSNSeqErr, a.trk.Expected())
	case p.PSN.After(a.highest):
		a.highest = p.PSN
	}
	return DropOutOfOrder
}

// repeatsNAK reports whether the NAK of the present gap is due once more.
func (a *inOrder) repeatsNAK(now mono.Time) bool {
	interval := a.trk.NAKInterval()
	return interval > 0 && now.Sub(a.nakAt) >= interval
}

// pacesNAK reports whether the NAK of a new gap has to wait, since another one has just been sent: what
// arrives later tells of it.
func (a *inOrder) pacesNAK(now mono.Time) bool {
	return a.trk.NAKPaced() && a.nakAt != 0 && now.Sub(a.nakAt) < a.trk.NAKInterval()
}

// nak schedules a NAK of the expected PSN.
func (a *inOrder) nak(s bth.Syndrome, psn bth.PSN) {
	a.syndrome, a.nakPSN, a.rnr = s, psn, s.IsRNR()
}

// wantAck schedules an acknowledgement; those of several requests coalesce.
func (a *inOrder) wantAck(psn bth.PSN) {
	if a.ack {
		a.r.q.ctr.AckDeferred++
		if psn.Before(a.ackPSN) {
			return
		}
	}
	a.ack, a.ackPSN = true, psn
}

// requestsFirst implements admission. A mere acknowledgement lets requests go first, that it
// can be the last packet of their super-frame, unless its message has woken a program.
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

// poll fills t with the next answer.
func (a *inOrder) poll(now mono.Time, t *Transmit) bool {
	r := a.r
	if r.q.state < RTR || r.q.state == Err && !r.lastWord {
		return false
	}
	for res := a.rd.next(); res != nil; res = a.rd.next() {
		// READ responses are data and share the rate of the queue pair. A window does not
		// hold them, for nobody acknowledges them.
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
		if r.q.blocked {
			return false
		}
		if res.given {
			// A duplicate that was late, most likely: the peer has its data and has
			// told so by other means, whereupon the key was taken away.
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

// respondNext builds the next response to res. It fails if the memory may no longer be
// read.
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
	t.Packet.Payload, t.Snapshot = data, res.given || res.start > 0 || k == 0 && last
	if res.next++; last {
		a.rd.done(res)
	}
	return true
}

// readRemote returns the data of the response that begins done bytes behind va and, at
// end, ends at the latest. If it fails because memory is not there yet, q is blocked.
func (q *QP) readRemote(rkey uint32, va uint64, done, end uint32) ([]byte, bool) {
	n := min(q.mtu, end-done)
	if n == 0 {
		return nil, true
	}
	data, ok := q.host.ReadRemote(rkey, va+uint64(done), int(n), end-done-n)
	q.blocked = !ok && q.host.Later()
	return data, ok
}

// readResponseOp is the operation of a response that is the first, the last, both or none.
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

// ackable is the PSN of the acknowledgement that waits: everything, or what comes
// before a READ or atomic behind ackPSN. That has been answered, but the answer may
// have been lost, or may come late: the peer would take an acknowledgement of it, or
// of what follows, for an implied NAK (IBTA vol.1 9.7.5.1.2), and Linux's rxe takes
// one with its very PSN for the answer, and completes it without data.
func (a *inOrder) ackable() bth.PSN {
	psn := a.trk.Expected().Add(-1)
	for i := a.rd.Tail; i != a.rd.Head && a.rd.At(i-1).first.After(a.ackPSN); i-- {
		psn = a.rd.At(i - 1).first.Add(-1)
	}
	return psn
}

// acknowledge builds an ACK or NAK. Either acknowledges all before it.
func (a *inOrder) acknowledge(t *Transmit, s bth.Syndrome, psn bth.PSN) {
	a.ack, a.r.urgent, a.syndrome = false, false, 0
	a.r.q.header(&t.Packet, bth.OpAcknowledge, psn)
	t.Packet.BECN = a.r.q.takeEcho()
	t.Packet.AETH = bth.AETH{Syndrome: s, MSN: a.r.msn}
}

// refuseRead breaks the queue pair over a region that went away while it was
// being read. The NAK names the response that cannot be given.
func (a *inOrder) refuseRead(now mono.Time, res *resource) {
	a.r.q.ctr.RespRemoteAccessErrors++
	psn := res.first.Add(int(res.next))
	if a.r.q.state != Err {
		a.r.fail(now, psn, true, badAccess)
	}
	a.nak(badAccess.nak, psn)
	a.r.lastWord = true
}
