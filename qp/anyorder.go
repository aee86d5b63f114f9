package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// anyOrder is the admission of the extended transports. Each packet says where its payload belongs, is placed on
// arrival and acknowledged. Its message completes once all packets before it have arrived (IRN 5.3, MP-RDMA 3.1,
// Eunomia 3.5.2).
type anyOrder struct {
	r    *responder
	acks ackQueue

	held   oooQueue // packets that wait for the packets before them
	first  bth.PSN  // of the first message that is not complete
	readSN uint32   // READs and atomics executed (IRN 5.3.2)
	done   bth.PSN  // all packets before it have been executed

	// Data may wait too: all data, if the tracker needs that (MELO 3.2.2), or the last packets of WRITEs (Eunomia
	// A.1).
	buffersAll, holdsLast bool
	responses             responseSender

	syndrome bth.Syndrome // of the NAK that is due; 0 = none
	nakPSN   bth.PSN
}

// syncTracker is a tracker that supports synchronise operations (MP-RDMA 3.4).
type syncTracker interface {
	// Early reports whether a packet before first is missing.
	Early(first bth.PSN) bool
}

// maxHeldLast limits the last packets of WRITEs that are held ahead of a gap; the next one is refused.
const maxHeldLast = 16

func (a *anyOrder) init(q *QP, p *Profile) {
	a.r = &q.resp
	_, a.buffersAll = p.Tracker.(reorder.Buffered)
	a.holdsLast = p.Traits.HoldLast == HoldAtReceiver
	a.responses.init(q, p)
}

func (a *anyOrder) start(psn bth.PSN) {
	a.first, a.done = psn, psn
	a.responses.start(psn)
}

func (a *anyOrder) reset() {
	a.acks.Clear()
	a.held.clear()
	a.responses.reset()
	a.readSN, a.syndrome = 0, 0
}

func (a *anyOrder) flush() {
	a.acks.Clear()
	a.held.clear()
	if !a.r.lastNAK {
		a.syndrome = 0
	}
}

// admit implements admission.
func (a *anyOrder) admit(now mono.Time, p *bth.Packet, m arrival, t *target) (v verdict) {
	q, trk := a.r.q, a.r.trk
	if d := q.announce(trk, p); d != Accepted {
		return verdict{drop: d}
	}
	switch v.order = trk.Classify(p.PSN); v.order {
	case reorder.Duplicate:
		q.ctr.DuplicateRequest++
		f := a.acks.push()
		if f.Expected = trk.Expected(); !p.PSN.Before(f.Expected) {
			f.HasSACK, f.SACK = true, p.PSN
		}
		q.completeAck(&a.acks, f, p, m)
		return verdict{drop: DropDuplicate}
	case reorder.Beyond:
		q.ctr.OutOfSequence++
		trk.Commit(p.PSN, v.order)
		q.np.reordered(now)
		q.queueAck(&a.acks, trk, p, m)
		return verdict{drop: DropOutOfOrder}
	case reorder.Held:
		if a.buffers(p) {
			v.step = stepBuffer
		}
		if a.early(p) || v.step == stepBuffer && !a.buffersAll && a.held.copies == maxHeldLast {
			a.refuse(p, m, v)
			return verdict{drop: DropOutOfOrder}
		}
	}
	v.refusal = a.locate(p, t)
	return v
}

// refuse implements admission. A packet ahead of a gap counts as lost: it may become executable, or be refused in
// order, when it is retransmitted. No NAK answers it before.
func (a *anyOrder) refuse(p *bth.Packet, m arrival, v verdict) bool {
	if v.order != reorder.Held {
		return true
	}
	a.r.q.ctr.OutOfSequence++
	a.r.trk.Commit(p.PSN, reorder.Refused)
	a.r.q.queueAck(&a.acks, a.r.trk, p, m)
	return false
}

// buffers reports whether the payload of p, ahead of a gap, must be placed in PSN order.
func (a *anyOrder) buffers(p *bth.Packet) bool {
	o := p.Opcode
	return a.buffersAll && (o.IsSend() || o.IsWrite()) || a.holdsLast && o.IsWrite() && o.Ends() && !o.HasImm()
}

// early reports whether p belongs to a synchronise operation and would touch memory too early: before all packets
// ahead of that operation have arrived (MP-RDMA 3.4).
func (a *anyOrder) early(p *bth.Packet) bool {
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

// locate finds the place of the payload of p from its extension header (IRN 5.3.1, 5.3.2).
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
		if o.IsSend() && !t.recv.matches(p) {
			return badSequence
		}
	}
	return nil
}

// commit implements admission.
func (a *anyOrder) commit(p *bth.Packet, m arrival, t *target, v verdict) {
	if v.order == reorder.Held {
		a.r.q.ctr.OutOfSequence++
	}
	o := p.Opcode
	a.r.trk.Commit(p.PSN, v.order)
	a.r.q.queueAck(&a.acks, a.r.trk, p, m)
	if o.IsSend() {
		t.recv.packets++
	}
	if o.Ends() || v.step == stepBuffer {
		a.hold(p, t, v.step == stepBuffer)
	}
}

// consistent reports whether the numbers in the packet of e agree with the messages executed before it.
func (a *anyOrder) consistent(e *oooEntry) bool {
	ok := e.first == a.first
	switch {
	case !e.message():
		return ok && e.sn == a.readSN
	case consumes(e.opcode):
		in := a.r.recvs.Oldest()
		ok = ok && in != nil && e.sn == a.r.recvs.Head&mask24 &&
			(e.opcode.IsWrite() || in.first == e.first && in.packets == e.psn.Since(e.first)+1)
	}
	return ok && e.msn == a.r.msn
}

// completed records that the message of e has been executed.
func (a *anyOrder) completed(e *oooEntry) {
	a.first = e.psn.Next()
	if !e.message() {
		a.readSN = (a.readSN + 1) & mask24
	}
}

// nak implements admission.
func (a *anyOrder) nak(s bth.Syndrome, psn bth.PSN) { a.syndrome, a.nakPSN = s, psn }

// room implements admission.
func (a *anyOrder) room() bool { return a.responses.room(a.held.queries) }

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

// pollAck fills t with the next NAK or acknowledgement of a request.
func (a *anyOrder) pollAck(t *Transmit) bool {
	q := a.r.q
	if q.state < RTR || q.state == Err && !a.r.lastNAK {
		return false
	}
	x := bth.AETH{Syndrome: bth.SyndromeACK, MSN: a.r.msn}
	if a.syndrome != 0 {
		x.Syndrome, a.syndrome = a.syndrome, 0
		q.acknowledge(t, bth.OpcodeExtAck, &reorder.Feedback{}, a.nakPSN, x)
		return true
	}
	if a.acks.Len() == 0 {
		return false
	}
	q.acknowledge(t, bth.OpcodeExtAck, a.acks.pop(), a.done, x)
	return true
}

// packets returns the number of packets of n bytes.
func packets(n, mtu uint32) uint32 {
	return max(1, uint32((uint64(n)+uint64(mtu)-1)/uint64(mtu)))
}
