package qp

import (
	"encoding/binary"
	"math"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// responder executes the peer's requests. Each packet goes through the same steps:
//
//	admit     is it the next one, and if not, what then?    (admission)
//	locate    where does its payload belong?                (admission)
//	validate  may it be executed?
//	place     its payload goes to memory
//	complete  what its message does, in the order of PSNs   (admission says when)
//
// Transports differ in their admission: standard RC takes packets in order, the extended
// transports in any order.
type responder struct {
	q     *QP
	trk   reorder.Tracker
	adm   admission
	recvs receives
	msn   uint32 // messages completed, modulo 2^24 (IBTA vol.1 9.7.7.1)

	comm     bool // communication has been established
	unsynced bool // payload has been placed since the last Sync
	placed   bool // what comes again is there, but for Sync (later)
	written  bool // the same of what ATOMIC WRITE writes
	lastWord bool // ERR was entered for a NAK that must still be sent
	urgent   bool // an acknowledgement leaves before requests, see QP.Woken
}

// admission decides which requests are taken and when what they do is done. It also keeps
// the answers, whose order depends on it.
type admission interface {
	// start begins at psn; reset has been called.
	start(psn bth.PSN)
	reset()
	// receive judges p by its PSN and takes it through the responder's steps.
	receive(now mono.Time, p *bth.Packet, m arrival) Drop
	// room reports whether one more READ or atomic may be accepted.
	room() bool
	// respond makes the response to a READ or atomic due that has been executed.
	respond(e effect)
	// nak makes a NAK of psn due.
	nak(s bth.Syndrome, psn bth.PSN)
	// poll fills t with the next answer.
	poll(now mono.Time, t *Transmit) bool
	// requestsFirst is how many requests may leave before the next answer, nothingDue if there
	// is none.
	requestsFirst() int
	// resume goes on with what had to wait for memory.
	resume(now mono.Time)
	// flush forgets what is not to be answered any more; the queue pair breaks.
	flush()
}

// nothingDue is more requests than anybody waits for.
const nothingDue = math.MaxInt16

// target is where the payload of a packet belongs.
type target struct {
	recv  *receive // SEND, and WRITE with immediate: the work request it consumes
	off   uint32   // of the payload in its message
	va    uint64   // WRITE
	rkey  uint32
	left  uint32 // WRITE: bytes of the message from this packet on
	check uint32 // WRITE: bytes whose access has not been checked
}

// effect is what the last packet of a message does once everything before it is done.
type effect struct {
	psn       bth.PSN
	opcode    bth.Opcode
	solicited bool
	imm       uint32 // immediate data or rkey to invalidate
	length    uint32 // bytes of the message or of the READ
	va        uint64
	rkey      uint32
	operand   uint64 // swap value, addend, what ATOMIC WRITE writes, type of FLUSH; then the value found
	compare   uint64
}

// later says that memory is not there yet: the packet comes again, and is not placed twice.
var later = &refusal{drop: Later}

// failed returns f, the reason of a call of Host that has failed, or later.
func (q *QP) failed(f *refusal) *refusal {
	if q.host.Later() {
		return later
	}
	return f
}

func (r *responder) init(q *QP, p *Profile) {
	r.q, r.trk = q, p.Tracker
	if q.x != nil {
		r.adm = &q.x.in
		return
	}
	strict, ok := r.trk.(*reorder.Strict)
	if !ok { // packets without an extension header can be taken in order only
		strict = reorder.NewStrict()
	}
	r.trk, r.adm = strict, &inOrder{r: r, trk: strict}
}

// start begins receiving at psn; the queue pair has entered RTR.
func (r *responder) start(psn bth.PSN) {
	r.reset()
	r.trk.Reset(psn)
	r.adm.start(psn)
}

// reset forgets everything, without completions.
func (r *responder) reset() {
	r.recvs.Clear()
	*r = responder{q: r.q, trk: r.trk, adm: r.adm, recvs: r.recvs}
	r.trk.Reset(bth.PSN{})
	r.adm.reset()
}

// RecvPosted tells that receive work requests may have been posted. They are
// taken when a message needs one; only a broken queue pair takes them at once,
// to flush them (IBTA vol.1 10.3.1.6).
func (q *QP) RecvPosted(now mono.Time) {
	if q.state == Err && !q.cfg.HasSRQ {
		q.touch()
		q.flush(now)
	}
}

// receive takes a request: communication is established (IBTA vol.1 11.6.3.1).
func (r *responder) receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	if !r.comm && r.q.state == RTR {
		r.q.host.Notify(EventCommEst)
	}
	r.comm = true
	if r.q.cfg.Type == UD {
		return r.receiveUD(now, p, m)
	}
	return r.adm.receive(now, p, arrival{m.CE, m.Path})
}

// place puts the payload of p where it belongs.
func (r *responder) place(p *bth.Packet, t *target) *refusal {
	switch {
	case p.Opcode.IsWrite():
		if len(p.Payload) > 0 && !r.q.host.WriteRemote(t.rkey, t.va, p.Payload) {
			return badWrite(p.Opcode)
		}
	case p.Opcode.IsSend():
		if f := t.recv.fill(r.q, t.off, p.Payload); f != nil {
			return f
		}
	default:
		return nil
	}
	r.unsynced = true
	return nil
}

// again reports whether the packet being taken has been placed and comes again.
func (r *responder) again() (placed bool) {
	placed, r.placed = r.placed, false
	return placed
}

// sync sees to it that what has been placed is there before anybody is told.
func (r *responder) sync(lost *refusal) *refusal {
	if r.unsynced && !r.q.host.Sync() {
		f := r.q.failed(lost)
		r.placed = f == later
		return f
	}
	r.unsynced = false
	return nil
}

// set makes e, which is zero, what p does, the last packet of a message; off are the bytes
// before it.
func (e *effect) set(p *bth.Packet, off uint32) {
	e.psn, e.opcode, e.solicited = p.PSN, p.Opcode, p.Solicited
	switch {
	case p.Opcode.IsAtomic():
		e.va, e.rkey, e.operand, e.compare = p.AtomicETH.VA, p.AtomicETH.RKey, p.AtomicETH.SwapAdd, p.AtomicETH.Compare
		return
	case p.Opcode.IsAtomicWrite():
		e.va, e.rkey, e.operand = p.RETH.VA, p.RETH.RKey, binary.NativeEndian.Uint64(p.Payload)
		return
	case p.Opcode.IsFlush():
		e.va, e.rkey, e.operand = p.RETH.VA, p.RETH.RKey, uint64(p.FETH.Type)
		if p.FETH.Level == bth.FlushRange {
			e.length = p.RETH.Length
		}
		return
	case p.Opcode.IsReadRequest():
		e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.Length
		return
	}
	e.length = off + uint32(len(p.Payload))
	switch {
	case p.Opcode.HasImm():
		e.imm = p.Imm
	case p.Opcode.HasInv():
		e.imm = p.IETH
	}
}

// complete carries out what the last packet of a message does; its payload is in memory.
func (r *responder) complete(e *effect) *refusal {
	o := e.opcode
	if o.IsSend() || o.IsWrite() {
		if o.HasInv() && !r.q.host.Invalidate(e.imm) {
			return badInvalKey
		}
		r.msn = (r.msn + 1) & psnMask
		if consumes(o) {
			r.deliver(e, CQE{ByteLen: e.length, SrcQP: r.q.attr.DestQPN})
		}
		return nil
	}
	if f := r.query(e); f != nil {
		return f
	}
	r.msn = (r.msn + 1) & psnMask
	if o.IsReadRequest() {
		r.q.ctr.RxReadRequests++
	} else if !o.IsFlush() {
		r.q.ctr.RxAtomicRequests++
	}
	r.adm.respond(*e)
	return nil
}

// consumes reports whether a packet of o completes a receive work request if it is the
// last one of its message.
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
		// Of a whole region only the key counts.
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

// atomicWrite carries out an ATOMIC WRITE.
func (r *responder) atomicWrite(e *effect) *refusal {
	binary.NativeEndian.PutUint64(r.q.scratch.word[:], e.operand)
	if !r.written && !r.q.host.WriteRemote(e.rkey, e.va, r.q.scratch.word[:]) {
		return badAccess
	}
	r.unsynced = true
	f := r.sync(badAccess)
	r.written = f == later
	return f
}

// deliver completes the oldest receive with what e says and c has besides.
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

// flush completes receive work requests when the queue pair breaks.
func (r *responder) flush() {
	for r.recvs.Oldest() != nil {
		r.completeInError(StatusWRFlushErr)
	}
	r.adm.flush()
	if r.q.cfg.HasSRQ {
		r.q.host.Notify(EventQPLastWQE) // IBTA vol.1 10.3.1: affiliated event "last WQE reached"
	}
}

// flushPosted flushes at most n of those that are in the receive queue, and reports whether
// there may be more.
func (r *responder) flushPosted(n int) (more bool) {
	for range n {
		if r.nextRecv() == nil {
			return false
		}
		r.completeInError(StatusWRFlushErr)
	}
	return true
}

// completeInError completes the oldest receive work request. Errors wake
// those too who wait for solicited completions only (IBTA vol.1 11.4.2.2).
func (r *responder) completeInError(s Status) {
	if s == StatusWRFlushErr {
		r.q.ctr.RespCQEFlushError++
	} else {
		r.q.ctr.RespCQEError++
	}
	id := r.recvs.Oldest().wqe.WRID
	r.recvs.Head++
	r.q.host.CompleteRecv(CQE{WRID: id, Status: s, Opcode: WCRecv, QPN: uint32(r.q.cfg.QPN), Solicited: true})
}
