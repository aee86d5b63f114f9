package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// anyOrder is the admission of the extended transports: data goes to its place as it comes,
// what else a request does waits until all before it has arrived (IRN 5.3, MP-RDMA 3.1,
// Eunomia 3.5.2). Each packet says where it belongs, and is acknowledged.
type anyOrder struct {
	r    *responder
	acks ackQueue

	waiting waiting // what packets do when their turn comes
	first   bth.PSN // of the first message that is not complete
	readSN  uint32  // READs and atomics executed (IRN 5.3.2)
	done    bth.PSN // all packets before it have been carried out

	// Data that waits too: all of it, if the tracker wants that (MELO 3.2.2), or last packets of
	// WRITEs (Eunomia A.1).
	buffersAll, keepsLast bool
	responses             responseSender

	syndrome bth.Syndrome // of the NAK that is due; 0 = none
	nakPSN   bth.PSN
}

// syncTracker is a tracker that knows of synchronise operations (MP-RDMA 3.4).
type syncTracker interface {
	// Early reports whether something before first is missing.
	Early(first bth.PSN) bool
}

// maxKept is how many last packets of WRITEs are kept ahead of a gap; the next one is refused.
const maxKept = 16

func (a *anyOrder) init(q *QP, p *Profile) {
	a.r = &q.resp
	_, a.buffersAll = p.Tracker.(reorder.Buffered)
	a.keepsLast = p.Traits.HoldLast == HoldAtReceiver
	a.responses.init(q, p)
}

func (a *anyOrder) start(psn bth.PSN) {
	a.first, a.done = psn, psn
	a.responses.start(psn)
}

func (a *anyOrder) reset() {
	a.acks.Clear()
	a.waiting.clear()
	a.responses.reset()
	a.readSN, a.syndrome = 0, 0
}

func (a *anyOrder) flush() {
	a.acks.Clear()
	a.waiting.clear()
	if !a.r.lastWord {
		a.syndrome = 0
	}
}

// receive takes a request.
func (a *anyOrder) receive(now mono.Time, p *bth.Packet, m arrival) Drop {
	r := a.r
	if !announce(r.trk, p) {
		return DropStaleAck
	}
	verdict := r.trk.Classify(p.PSN)
	switch verdict {
	case reorder.Duplicate:
		r.q.ctr.DuplicateRequest++
		f := a.acks.push()
		if f.Expected = r.trk.Expected(); !p.PSN.Before(f.Expected) {
			f.HasSACK, f.SACK = true, p.PSN
		}
		r.q.due(&a.acks, f, p, m)
		return DropDuplicate
	case reorder.Beyond:
		r.q.ctr.OutOfSequence++
		r.trk.Commit(p.PSN, verdict)
		r.q.report(&a.acks, r.trk, p, m)
		return DropOutOfOrder
	}
	held := verdict == reorder.Held
	copied := held && a.copies(p)
	if held && (a.premature(p) || copied && !a.buffersAll && a.waiting.copies == maxKept) {
		a.decline(p, m)
		return DropOutOfOrder
	}
	var t target
	f := a.locate(p, &t)
	if f == nil {
		f = r.validate(p, &t)
	}
	if f == nil && !copied {
		f = r.place(p, &t)
	}
	if f != nil {
		if held {
			a.decline(p, m)
			return f.drop
		}
		return r.refuse(now, p.PSN, t.recv != nil && t.recv == r.recvs.Oldest(), f)
	}
	if held {
		r.q.ctr.OutOfSequence++
	}
	return a.accept(now, p, m, verdict, &t, copied)
}

// decline drops a packet ahead of a gap that cannot be executed now. It may be possible, or its
// turn to be refused, when it comes again; until then it counts as lost, and the peer is told.
func (a *anyOrder) decline(p *bth.Packet, m arrival) {
	a.r.q.ctr.OutOfSequence++
	a.r.trk.Commit(p.PSN, reorder.Refused)
	a.r.q.report(&a.acks, a.r.trk, p, m)
}

// copies reports whether p, ahead of a gap, must not be placed yet.
func (a *anyOrder) copies(p *bth.Packet) bool {
	o := p.Opcode
	return a.buffersAll && (o.IsSend() || o.IsWrite()) || a.keepsLast && o.IsWrite() && o.Ends() && !o.HasImm()
}

// premature reports whether p is of a synchronise operation and would touch memory before all
// before that operation has arrived (MP-RDMA 3.4).
func (a *anyOrder) premature(p *bth.Packet) bool {
	t, ok := a.r.trk.(syncTracker)
	if !ok || p.Ext.Flags&bth.XSync == 0 {
		return false
	}
	first := p.PSN
	if p.Ext.Flags&bth.XHasMsg != 0 {
		first = first.Add(-int(p.Ext.Offset))
	}
	return t.Early(first)
}

// locate finds where the payload of p belongs, as it says itself (IRN 5.3.1, 5.3.2).
func (a *anyOrder) locate(p *bth.Packet, t *target) *refusal {
	x, o := &p.Ext, p.Opcode
	need := bth.XHasReadSN
	if o.IsSend() || o.IsWrite() {
		need = bth.XHasMsg
		if consumes(o) {
			need |= bth.XHasRecvSN
		}
	}
	off := uint64(x.Offset) * uint64(a.r.q.mtu)
	if x.Flags&need != need || need&bth.XHasMsg != 0 && off > MaxMessage {
		return badSequence
	}
	t.off = uint32(off)
	if o.IsWrite() {
		t.va, t.rkey, t.left, t.check = p.RETH.VA, p.RETH.RKey, p.RETH.Length, uint32(len(p.Payload))
	}
	if consumes(o) {
		if t.recv = a.r.takeRecv(x.RecvSN); t.recv == nil {
			return notReady
		}
		if o.IsSend() && !t.recv.takes(p) {
			return badSequence
		}
	}
	return nil
}

// accept commits a packet that has been taken and carries out the effects that it makes possible.
func (a *anyOrder) accept(now mono.Time, p *bth.Packet, m arrival, v reorder.Verdict, t *target, copied bool) Drop {
	o := p.Opcode
	a.r.trk.Commit(p.PSN, v)
	a.r.q.report(&a.acks, a.r.trk, p, m)
	if o.IsSend() {
		t.recv.packets++
	}
	if o.Ends() || copied {
		a.wait(p, t, copied)
	}
	a.release(now)
	return Accepted
}

// release carries out what has waited for the packets that are there now.
func (a *anyOrder) release(now mono.Time) {
	expected := a.r.trk.Expected()
	for w := a.waiting.Oldest(); w != nil && w.psn.Before(expected); w = a.waiting.Oldest() {
		if f := a.carryOut(w); f != nil {
			a.done = w.psn
			if f == later {
				a.r.q.blocked = true
			} else {
				a.r.refuse(now, w.psn, consumes(w.opcode) && w.sn == a.r.recvs.Head&psnMask, f)
			}
			return
		}
		a.waiting.pop()
	}
	a.done = expected
}

// resume implements admission. Responses to our own READs may have waited too.
func (a *anyOrder) resume(now mono.Time) {
	if a.release(now); a.r.q.sending() {
		a.r.q.x.out.release(now, true)
	}
}

// carryOut does what has waited. It may be called again if memory was not there.
func (a *anyOrder) carryOut(w *waiter) *refusal {
	if w.copied {
		if f := a.placeCopy(w); f != nil {
			return f
		}
		w.copied = false
		a.waiting.copies--
	}
	if !w.opcode.Ends() {
		return nil
	}
	if f := a.r.sync(badAccess); f != nil {
		return f
	}
	if f := a.check(w); f != nil {
		return f
	}
	if f := a.r.complete(&w.effect); f != nil {
		return f
	}
	a.first = w.psn.Next()
	if !w.message() {
		a.readSN = (a.readSN + 1) & psnMask
	}
	return nil
}

// check compares what a packet says of its message with the order of PSNs.
func (a *anyOrder) check(w *waiter) *refusal {
	ok := w.first == a.first
	switch {
	case !w.message():
		ok = ok && w.sn == a.readSN
	case consumes(w.opcode):
		in := a.r.recvs.Oldest()
		ok = ok && in != nil && w.sn == a.r.recvs.Head&psnMask &&
			(w.opcode.IsWrite() || in.first == w.first && in.packets == distance(w.first, w.psn)+1)
		fallthrough
	default:
		ok = ok && w.msn == a.r.msn
	}
	if !ok {
		return badSequence
	}
	return nil
}

// placeCopy places data that has waited.
func (a *anyOrder) placeCopy(w *waiter) *refusal {
	h := a.r.q.host
	a.r.unsynced = true
	if w.opcode.IsSend() {
		in := a.r.takeRecv(w.sn)
		if in == nil {
			return badSequence
		}
		return in.fill(a.r.q, w.off, w.data)
	}
	n := uint32(len(w.data))
	if n > 0 && !(h.CheckRemote(w.rkey, w.va, n, AccessRemoteWrite) && h.WriteRemote(w.rkey, w.va, w.data)) {
		return badWrite(w.opcode)
	}
	return nil
}

func (a *anyOrder) nak(s bth.Syndrome, psn bth.PSN) { a.syndrome, a.nakPSN = s, psn }

// room implements admission.
func (a *anyOrder) room() bool { return a.responses.room(a.waiting.queries) }

// respond implements admission.
func (a *anyOrder) respond(e effect) {
	x := response{span: 1, msn: a.r.msn}
	switch {
	case e.opcode.IsReadRequest():
		x.span, x.va, x.rkey, x.length = packets(e.length, a.r.q.mtu), e.va, e.rkey, e.length
	case e.opcode.IsAtomic():
		x.atomic, x.orig = true, e.operand
	}
	a.responses.add(x)
}

// requestsFirst implements admission: acknowledgements go first, for they clock the peer;
// requests and responses take turns.
func (a *anyOrder) requestsFirst() int {
	switch {
	case a.acks.Len() > 0 || a.syndrome != 0 || a.r.q.x.out.acks.Len() > 0:
		return 0
	case a.responses.idle():
		return nothingDue
	}
	return 1
}

// poll implements admission: acknowledgements of requests, then of responses, then responses.
func (a *anyOrder) poll(now mono.Time, t *Transmit) bool {
	q := a.r.q
	if q.state < RTR || q.state == Err && !a.r.lastWord {
		return false
	}
	x := bth.AETH{Syndrome: bth.SyndromeACK, MSN: a.r.msn}
	if a.syndrome != 0 {
		x.Syndrome, a.syndrome = a.syndrome, 0
		q.acknowledge(t, bth.OpcodeExtAck, &reorder.Feedback{}, a.nakPSN, x)
		return true
	}
	if a.acks.Len() > 0 {
		q.acknowledge(t, bth.OpcodeExtAck, a.acks.pop(), a.done, x)
		return true
	}
	return q.x.out.pollAck(t) || a.responses.poll(now, t)
}

// packets is how many packets n bytes take.
func packets(n, mtu uint32) uint32 {
	return max(1, uint32((uint64(n)+uint64(mtu)-1)/uint64(mtu)))
}
