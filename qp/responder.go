package qp

import (
	"encoding/binary"
	"math"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// responder executes the peer's requests. It takes each packet through the same steps:
//
//	admit     the admission judges the PSN and locates the payload
//	validate  the headers are checked
//	place     the payload is written to memory
//	execute   the last packet of a message completes it
//	commit    the admission records the packet and makes its acknowledgement due
//
// Standard transports take packets in order and execute a message with its last packet. The extended transports
// take packets in any order and execute messages in PSN order, after commit (release).
type responder struct {
	q     *QP
	trk   reorder.Tracker
	adm   admission
	recvs receives
	msn   uint32 // messages completed, modulo 2^24 (IBTA vol.1 9.7.7.1)

	memory  memoryState // of requests
	comm    bool        // communication has been established
	lastNAK bool        // a NAK must still be sent in ERR
	urgent  bool        // an acknowledgement leaves before requests, see QP.Woken
}

// admission decides which requests are taken and when they are executed. It also keeps the answers, because their
// order depends on it.
type admission interface {
	// start begins at psn; reset has been called.
	start(psn bth.PSN)
	reset()
	// admit judges p by its PSN and sets t, which is zero, to the place of its payload.
	admit(now mono.Time, p *bth.Packet, m arrival, t *target) verdict
	// commit records that p has been taken.
	commit(p *bth.Packet, m arrival, t *target, v verdict)
	// refuse records that p cannot be executed, and reports whether a NAK answers it.
	refuse(p *bth.Packet, m arrival, v verdict) (nak bool)
	// room reports whether one more READ or atomic may be accepted.
	room() bool
	// respond makes the response to an executed READ or atomic due.
	respond(e effect)
	// nak makes a NAK of psn due.
	nak(s bth.Syndrome, psn bth.PSN)
	// poll fills t with the next answer.
	poll(now mono.Time, t *Transmit) bool
	// requestsFirst returns how many requests may leave before the next answer, nothingDue if no answer is due.
	requestsFirst() int
	// flush drops answers that are not due any more because the queue pair breaks.
	flush()
}

// nothingDue exceeds every limit on requests before an answer.
const nothingDue = math.MaxInt16

// verdict is the decision of an admission on a packet. With more than four fields the compiler would not keep it in
// registers.
type verdict struct {
	drop    Drop            // if not Accepted: drop the packet; its answer is due
	refusal *refusal        // if not nil: refuse the packet
	step    step            // for an accepted packet
	order   reorder.Verdict // the tracker's verdict: InOrder or Held
}

// step says when a packet is placed and its message executed.
type step uint8

const (
	stepPlace   step = iota // place it now, execute its message in PSN order, after commit
	stepBuffer              // place it in PSN order too
	stepExecute             // place it now and execute its message
)

// target is the place of a packet's payload.
type target struct {
	recv  *receive // SEND, and WRITE with immediate: the work request it consumes
	off   uint32   // of the payload in its message
	va    uint64   // WRITE
	rkey  uint32
	left  uint32 // WRITE: bytes of the message from this packet on
	check uint32 // WRITE: bytes whose access has not been checked
}

// effect is the operation that the last packet of a message carries out after all packets before it.
type effect struct {
	psn       bth.PSN
	opcode    bth.Opcode
	solicited bool
	imm       uint32 // immediate data or rkey to invalidate
	length    uint32 // bytes of the message or of the READ
	va        uint64
	rkey      uint32
	operand   uint64 // swap value, addend, value of ATOMIC WRITE, type of FLUSH; then the original value
	compare   uint64
}

// set makes e, which is zero, the operation of p, the last packet of a message; off is the number of bytes before it.
func (e *effect) set(p *bth.Packet, off uint32) {
	e.psn, e.opcode, e.solicited = p.PSN, p.Opcode, p.Solicited
	if p.Opcode.IsAtomic() {
		e.va, e.rkey, e.operand, e.compare = p.AtomicETH.VA, p.AtomicETH.RKey, p.AtomicETH.SwapAdd, p.AtomicETH.Compare
		return
	}
	e.va, e.rkey = p.RETH.VA, p.RETH.RKey
	switch {
	case p.Opcode.IsAtomicWrite():
		e.operand = binary.NativeEndian.Uint64(p.Payload)
	case p.Opcode.IsFlush():
		if e.operand = uint64(p.FETH.Type); p.FETH.Level == bth.FlushRange {
			e.length = p.RETH.Length
		}
	case p.Opcode.IsReadRequest():
		e.length = p.RETH.Length
	default:
		e.length = off + uint32(len(p.Payload))
		if p.Opcode.HasImm() {
			e.imm = p.Imm
		} else if p.Opcode.HasInv() {
			e.imm = p.IETH
		}
	}
}

func (r *responder) init(q *QP, p *Profile) {
	r.q, r.trk = q, p.Tracker
	if q.x != nil {
		if r.adm = q.x; q.x.mrc != nil {
			r.adm = q.x.mrc
		}
		return
	}
	strict, ok := r.trk.(*reorder.Strict)
	if !ok { // packets without an extension header can only be taken in order
		strict = reorder.NewStrict()
	}
	r.trk, r.adm = strict, &inOrder{r: r, trk: strict}
	if q.cfg.Type == UC {
		r.adm = &unreliable{inOrder{r: r, trk: strict}}
	}
}

// start begins receiving at psn; the queue pair has entered RTR.
func (r *responder) start(psn bth.PSN) {
	r.reset()
	r.trk.Reset(psn)
	r.adm.start(psn)
}

// reset clears all state, without completions.
func (r *responder) reset() {
	r.recvs.Clear()
	*r = responder{q: r.q, trk: r.trk, adm: r.adm, recvs: r.recvs}
	r.trk.Reset(bth.PSN{})
	r.adm.reset()
}

// receive takes a request. The first one establishes communication (IBTA vol.1 11.6.3.1).
func (r *responder) receive(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	if !r.comm && r.q.state == RTR {
		r.q.host.Notify(EventCommEst)
	}
	r.comm = true
	if r.q.cfg.Type == UD {
		return r.receiveUD(now, p, m)
	}
	from := arrival{m.CE, m.Path}
	var t target
	v := r.admit(now, p, from, &t)
	if v.drop != Accepted {
		return v.drop
	}
	f := v.refusal
	placed := v.step == stepBuffer || v.step == stepExecute && r.memory.retried()
	if f == nil {
		f = r.validate(p, &t)
	}
	if f == nil && v.step == stepBuffer && !r.q.fetch(p) {
		f = r.q.failed(badAccess)
	}
	if f == nil {
		f = r.place(p, &t, placed)
	}
	if f == nil && v.step == stepExecute && p.Opcode.Ends() {
		f = r.execute(p, t.off)
	}
	if f != nil {
		return r.reject(now, p, from, &t, v, f)
	}
	if r.commit(p, from, &t, v); v.step != stepExecute {
		if v.order == reorder.Held {
			r.q.np.reordered(now)
		}
		r.release(now)
	}
	return Accepted
}

// admit calls the admission by its type, so that t stays on the stack.
func (r *responder) admit(now mono.Time, p *bth.Packet, m arrival, t *target) verdict {
	switch a := r.adm.(type) {
	case *inOrder:
		return a.admit(now, p, m, t)
	case *unreliable:
		return a.admit(now, p, m, t)
	case *mrcExtension:
		return a.admit(now, p, m, t)
	}
	return r.q.x.anyOrder.admit(now, p, m, t)
}

// commit counts a new WRITE and calls the admission by its type, as admit does.
func (r *responder) commit(p *bth.Packet, m arrival, t *target, v verdict) {
	if p.Opcode.IsWrite() && p.Opcode.Starts() {
		r.q.ctr.RxWriteRequests++
	}
	switch a := r.adm.(type) {
	case *inOrder:
		a.commit(p, m, t, v)
	case *unreliable:
		a.commit(p, m, t, v)
	case *mrcExtension:
		a.commit(p, m, t, v)
	default:
		r.q.x.commit(p, m, t, v)
	}
}

// reject handles a packet that the responder cannot execute.
func (r *responder) reject(now mono.Time, p *bth.Packet, m arrival, t *target, v verdict, f *refusal) Drop {
	switch {
	case f == later:
		return f.drop
	case r.adm.refuse(p, m, v):
		return r.refuse(now, p.PSN, v.step == stepExecute || t.recv != nil && t.recv == r.recvs.Oldest(), f)
	case r.q.cfg.Type == UC:
		return r.dropped(now, f)
	}
	return f.drop
}

// release executes the messages of an extended transport that are complete, and places the data that waited.
func (r *responder) release(now mono.Time) {
	a := &r.q.x.anyOrder
	expected := r.trk.Expected()
	for e := a.held.Oldest(); e != nil && e.psn.Before(expected); e = a.held.Oldest() {
		if f := r.executeHeld(e); f != nil {
			a.done = e.psn
			if f == later {
				r.q.memory = memoryBlocked
			} else {
				r.refuse(now, e.psn, consumes(e.opcode) && e.sn == r.recvs.Head&mask24, f)
			}
			return
		}
		a.held.pop()
	}
	a.done = expected
}

// RecvPosted reports that receive work requests may have been posted. It takes them when a message
// needs one. Only a broken queue pair takes them at once, to flush them (IBTA vol.1 10.3.1.6).
func (q *QP) RecvPosted(now mono.Time) {
	if q.state == Err && !q.cfg.HasSRQ {
		q.touch()
		q.flush(now)
	}
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

// flushPosted flushes at most n work requests of the receive queue, and reports whether there may be more.
func (r *responder) flushPosted(n int) (more bool) {
	for range n {
		if r.nextRecv() == nil {
			return false
		}
		r.completeInError(StatusWRFlushErr)
	}
	return true
}

// completeInError completes the oldest receive work request. Errors also wake programs that wait for solicited
// completions only (IBTA vol.1 11.4.2.2).
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
