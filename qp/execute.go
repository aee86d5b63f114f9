package qp

import (
	"encoding/binary"

	"roced.io/roced/bth"
)

// later refuses a packet whose data or memory are not available yet: it is retried.
var later = &refusal{drop: Later}

// failed returns f, the reason of a failed call of Host, or later.
func (q *QP) failed(f *refusal) *refusal {
	if q.host.Later() {
		return later
	}
	return f
}

// place writes the payload of p to t, unless it was placed before or is buffered, and takes the receive that p
// consumes.
func (r *responder) place(p *bth.Packet, t *target, placed bool) *refusal {
	o := p.Opcode
	if consumes(o) && r.q.x == nil {
		if t.recv = r.nextRecv(); t.recv == nil {
			return notReady
		}
	}
	switch {
	case placed:
		return nil
	case o.IsWrite():
		if len(p.Payload) > 0 && !r.q.host.WriteRemote(t.rkey, t.va, p.Payload, r.ahead(p, t)) {
			return r.q.failed(badWrite(o))
		}
	case o.IsSend():
		if f := t.recv.fill(r.q, t.off, p.Payload); f != nil {
			return f
		}
	default:
		return nil
	}
	r.memory.wrote()
	return nil
}

// ahead returns the number of bytes of the message behind the payload of p, a WRITE. MIDDLE packets of MRC lack it.
func (r *responder) ahead(p *bth.Packet, t *target) uint32 {
	if p.Opcode.Transport() == bth.TransportMRC && p.Opcode.IsMiddle() {
		return 0
	}
	return t.left - uint32(len(p.Payload))
}

// sync makes placed data visible before the completion or response that follows; lost is the refusal if it fails.
func (r *responder) sync(lost *refusal) *refusal {
	switch ok, wait := r.memory.sync(r.q.host); {
	case ok:
		return nil
	case wait:
		return later
	}
	return lost
}

// execute carries out the message that p ends, off bytes of which are before p.
func (r *responder) execute(p *bth.Packet, off uint32) *refusal {
	if ok, wait := r.memory.sync(r.q.host); !ok {
		return unsynced(p.Opcode, wait)
	}
	var e effect
	e.set(p, off)
	return r.complete(&e)
}

// unsynced returns the refusal of a message of o whose data are not visible; wait means that Sync may succeed later.
func unsynced(o bth.Opcode, wait bool) *refusal {
	switch {
	case wait:
		return later
	case o.IsWrite():
		return badWrite(o)
	}
	return badBuffer
}

// executeHeld carries out a held packet, all before it being done. It is called again if memory was not available.
func (r *responder) executeHeld(e *oooEntry) *refusal {
	x := r.q.x
	if e.copied {
		if f := r.placeHeld(e); f != nil {
			return f
		}
		e.copied = false
		x.held.copies--
	}
	if !e.opcode.Ends() {
		return nil
	}
	if f := r.sync(badAccess); f != nil {
		return f
	}
	if !x.consistent(e) {
		return badSequence
	}
	if f := r.complete(&e.effect); f != nil {
		return f
	}
	x.completed(e)
	return nil
}

// placeHeld places buffered data.
func (r *responder) placeHeld(e *oooEntry) *refusal {
	h := r.q.host
	r.memory.wrote()
	if e.opcode.IsSend() {
		in := r.takeRecv(e.sn)
		if in == nil {
			return badSequence
		}
		return in.fill(r.q, e.off, e.data)
	}
	n := uint32(len(e.data))
	if n > 0 && !(h.CheckRemote(e.rkey, e.va, n, AccessRemoteWrite) && h.WriteRemote(e.rkey, e.va, e.data, 0)) {
		return badWrite(e.opcode)
	}
	return nil
}

// complete carries out e; the payload of its message is in memory.
func (r *responder) complete(e *effect) *refusal {
	o := e.opcode
	message := o.IsSend() || o.IsWrite()
	if message && o.HasInv() && !r.q.host.Invalidate(e.imm) {
		return badInvalKey
	}
	if !message {
		if f := r.query(e); f != nil {
			return f
		}
	}
	r.msn = (r.msn + 1) & mask24
	r.q.countServed(o, e.length)
	switch {
	case message:
		if consumes(o) {
			r.deliver(e, CQE{ByteLen: e.length, SrcQP: r.q.attr.DestQPN})
		}
		return nil
	case o.IsReadRequest():
		r.q.ctr.RxReadRequests++
	case !o.IsFlush():
		r.q.ctr.RxAtomicRequests++
	}
	r.adm.respond(*e)
	return nil
}

// consumes reports whether a message of o consumes a receive work request if it ends with o.
func consumes(o bth.Opcode) bool { return o.IsSend() || o.IsWrite() && o.HasImm() }

// query executes an atomic, an ATOMIC WRITE or a FLUSH, or checks that a READ can be answered.
func (r *responder) query(e *effect) *refusal {
	h := r.q.host
	var orig uint64
	var ok bool
	switch {
	case e.opcode.IsReadRequest():
		if e.length > 0 && !h.CheckRemote(e.rkey, e.va, e.length, AccessRemoteRead) {
			return badAccess
		}
		return nil
	case e.opcode.IsFlush():
		// For a whole region only the key counts.
		if !h.CheckRemote(e.rkey, e.va, e.length, flushAccess(e.operand)) {
			return badAccess
		}
		return r.sync(badAccess)
	case e.va%8 != 0: // IBTA vol.1 9.4.5
		return misaligned
	case e.opcode.IsAtomicWrite():
		return r.atomicWrite(e)
	case !h.CheckRemote(e.rkey, e.va, 8, AccessRemoteAtomic):
		return badAccess
	case e.opcode.Op() == bth.OpCmpSwap:
		orig, ok = h.CompareSwap(e.rkey, e.va, e.compare, e.operand)
	default:
		orig, ok = h.FetchAdd(e.rkey, e.va, e.operand)
	}
	if !ok {
		return r.q.failed(badAccess)
	}
	e.operand = orig
	return nil
}

// atomicWrite carries out an ATOMIC WRITE. It writes the value once, even if Sync has to wait.
func (r *responder) atomicWrite(e *effect) *refusal {
	binary.NativeEndian.PutUint64(r.q.scratch.word[:], e.operand)
	if r.memory != memoryWritten && !r.q.host.WriteRemote(e.rkey, e.va, r.q.scratch.word[:], 0) {
		return badAccess
	}
	r.memory = memoryWritten
	f := r.sync(badAccess)
	if f == nil {
		r.memory = memorySynced
	}
	return f
}

// deliver completes the oldest receive with e and the fields that c has already.
func (r *responder) deliver(e *effect, c CQE) {
	c.WRID, c.Opcode, c.Solicited, c.Imm = r.recvs.Oldest().wqe.WRID, WCRecv, e.solicited, e.imm
	c.QPN = uint32(r.q.cfg.QPN)
	r.recvs.Head++
	switch {
	case e.opcode.HasImm():
		c.Flags |= WCWithImm
	case e.opcode.HasInv():
		c.Flags |= WCWithInv
	}
	if e.opcode.IsWrite() {
		c.Opcode = WCRecvWithImm
	}
	r.q.ctr.RDMARecvs++
	r.q.host.CompleteRecv(c)
}
