package qp

import (
	"roced/bth"
	"roced/mono"
	"roced/reorder"
)

// responder executes the peer's requests and answers them.
type responder struct {
	q   *QP
	trk reorder.Tracker
	msn uint32 // messages completed, modulo 2^24 (IBTA vol.1 9.7.7.1)

	msg message
	in  inbox

	// Answers that wait for poll. They leave in PSN order: an acknowledgement
	// must not overtake a READ response before it, which would be an implied NAK
	// (IBTA vol.1 9.7.5.1.2). A NAK acknowledges all before it as well.
	ack     bool
	ackPSN  bth.PSN
	urgent  bool         // the acknowledgement leaves before requests, see QP.Woken
	nak     bth.Syndrome // 0 = none; an ACK is never kept here
	nakPSN  bth.PSN
	rd      rdQueue
	gap     bool    // the present gap has been reported (9.7.5.2.8)
	ahead   bth.PSN // the highest PSN that was dropped behind it
	rnr     bool    // the expected request has been refused as not ready
	comm    bool    // communication has been established
	parting bool    // ERR was entered for a NAK that must still be sent
}

// message is the multi-packet request being received.
type message struct {
	active bool
	write  bool
	recv   bool   // ends with the completion of a receive work request
	va     uint64 // WRITE: where the next packet goes
	rkey   uint32
	left   uint32 // WRITE: bytes still to come
	got    uint32 // bytes received
}

func (r *responder) init(q *QP) { r.q, r.trk = q, q.cfg.Profile.Tracker }

// start begins receiving at psn; the queue pair has entered RTR.
func (r *responder) start(psn bth.PSN) {
	r.reset()
	r.trk.Reset(psn)
}

// reset forgets everything, without completions.
func (r *responder) reset() {
	*r = responder{q: r.q, trk: r.trk}
	r.trk.Reset(bth.PSN{})
}

// RecvPosted tells that receive work requests may have been posted. They are
// taken when a message needs one; only a broken queue pair takes them at once,
// to flush them (IBTA vol.1 10.3.1.6).
func (q *QP) RecvPosted(mono.Time) {
	if q.state == Err && !q.cfg.HasSRQ {
		q.resp.flushPosted()
	}
}

func (r *responder) receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	r.established()
	switch r.q.cfg.Type {
	case UC:
		return r.receiveUC(now, p)
	case UD:
		return r.receiveUD(now, p, m)
	}
	return r.receiveRC(now, p)
}

// established is told of a request: communication is.
func (r *responder) established() {
	if r.comm {
		return
	}
	r.comm = true
	if r.q.state == RTR {
		r.q.host.Notify(EventCommEst) // IBTA vol.1 11.6.3.1
	}
}

// receiveRC takes a request of a reliable connection (IBTA vol.1 9.7.4).
func (r *responder) receiveRC(now mono.Time, p *bth.Packet) Drop {
	switch r.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		r.q.ctr.DuplicateRequest++
		return r.duplicate(p)
	case reorder.Beyond, reorder.Held:
		return r.outOfOrder(p)
	}
	r.rnr = false
	if f := r.check(p); f != nil {
		return r.refuse(now, p, f)
	}
	if f := r.execute(p); f != nil {
		return r.refuse(now, p, f)
	}
	return Accepted
}

// outOfOrder drops a request beyond the expected one. Each gap is answered by
// one NAK, until the expected packet arrives (IBTA vol.1 9.7.5.2.8); behind a
// request refused as not ready the gap is of our own making.
func (r *responder) outOfOrder(p *bth.Packet) Drop {
	r.q.ctr.OutOfSeqRequest++
	r.q.ctr.OutOfSequence++
	r.trk.Receive(p.PSN, false)
	switch {
	case r.rnr:
	case !r.gap:
		r.gap, r.ahead = true, p.PSN
		r.sendNAK(bth.SyndromePSNSeqErr)
	case p.PSN.After(r.ahead):
		r.ahead = p.PSN
	}
	return DropOutOfOrder
}

// advance records that a request packet has been executed. A NAK that has not
// left yet is overtaken by the packet it asks for; that of a gap then asks for
// the next packet if that has been dropped too. A READ request takes span PSNs.
func (r *responder) advance(p *bth.Packet, span uint32, ends bool) {
	r.trk.Receive(p.PSN, ends)
	if span > 1 {
		r.trk.(*reorder.Strict).Skip(span - 1)
	}
	if r.rd.count != r.rd.floor {
		r.rd.expire(r.trk.Expected())
	}
	if r.nak == bth.SyndromePSNSeqErr && !r.ahead.Before(r.trk.Expected()) {
		r.nakPSN = r.trk.Expected()
	} else {
		r.nak, r.gap = 0, false
	}
	if ends {
		r.msn = (r.msn + 1) & psnMask
	}
}

// wantAck schedules an acknowledgement; those of several requests coalesce.
func (r *responder) wantAck(psn bth.PSN) {
	if r.ack {
		r.q.ctr.AckDeferred++
		if psn.Before(r.ackPSN) {
			return
		}
	}
	r.ack, r.ackPSN = true, psn
}

// sendNAK schedules a NAK of the expected PSN.
func (r *responder) sendNAK(s bth.Syndrome) {
	r.nak, r.nakPSN = s, r.trk.Expected()
}

// flush completes receive work requests when the queue pair breaks.
func (r *responder) flush() {
	r.msg.active = false
	if r.in.taken {
		r.completeInError(StatusWRFlushErr)
	}
	if !r.parting {
		r.ack, r.nak = false, 0
		r.rd.clear()
	}
	if r.q.cfg.HasSRQ {
		r.q.host.Notify(EventQPLastWQE) // IBTA vol.1 10.3.1: affiliated event "last WQE reached"
		return
	}
	r.flushPosted()
}

// flushPosted flushes what is in the receive queue. A client that keeps posting
// is not waited for.
func (r *responder) flushPosted() {
	for range r.q.cfg.MaxRecvWR + 1 {
		if !r.nextRecv() {
			return
		}
		r.completeInError(StatusWRFlushErr)
	}
}

// completeInError completes the receive work request last taken. Errors wake
// those too who wait for solicited completions only (IBTA vol.1 11.4.2.2).
func (r *responder) completeInError(s Status) {
	if r.in.taken = false; s == StatusWRFlushErr {
		r.q.ctr.RespCQEFlushError++
	} else {
		r.q.ctr.RespCQEError++
	}
	r.q.host.CompleteRecv(CQE{
		WRID: r.in.wqe.WRID, Status: s, Opcode: WCRecv, QPN: uint32(r.q.cfg.QPN), Solicited: true,
	})
}
