package qp

import (
	"roced/bth"
	"roced/mono"
	"roced/reorder"
)

// extResponder is the responder of an extended transport. It takes requests in any
// order: data goes to its place at once, what else a request does waits until all
// before it has arrived (IRN 5.3, MP-RDMA 3.1, Eunomia 3.5.2).
type extResponder struct {
	q         *QP
	trk       reorder.Tracker
	msn       uint32  // messages completed, modulo 2^24 (IRN 5.3.3)
	readSN    uint32  // READs and atomics executed (IRN 5.3.2)
	first     bth.PSN // of the first message that is not complete
	acks      ackQueue
	perPacket bool // an acknowledgement for each packet: they clock the sender

	recvs   recvWindow
	parked  []parked // by PSN
	kept    keeper
	buffer  orderBuffer
	answers answers

	nak    bth.Syndrome // 0 = none; an ACK is never kept here
	nakPSN bth.PSN
	word   [atomicWriteLen]byte // on its way to memory
}

// start begins receiving at psn; the queue pair has entered RTR.
func (r *extResponder) start(psn bth.PSN) {
	r.reset()
	r.first = psn
	r.trk.Reset(psn)
	r.answers.start(psn)
}

func (r *extResponder) reset() {
	r.acks.clear()
	r.recvs.clear()
	r.buffer.clear()
	r.msn, r.readSN, r.nak, r.parked, r.kept.n = 0, 0, 0, r.parked[:0], 0
	r.answers.reset()
}

// receive takes a request.
func (r *extResponder) receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	r.q.resp.established()
	if !announce(r.trk, p) {
		return DropStaleAck
	}
	switch r.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		r.q.ctr.DuplicateRequest++
		f := bth.Feedback{Expected: r.trk.Expected()}
		if !p.PSN.Before(f.Expected) {
			f.HasSACK, f.SACK = true, p.PSN
		}
		r.acks.push(answerTo(f, p, m, r.perPacket), r.perPacket)
		return DropDuplicate
	case reorder.Beyond:
		r.q.ctr.OutOfSequence++
		r.trk.Receive(p.PSN, false)
		r.acks.push(answerTo(r.trk.Feedback(), p, m, r.perPacket), r.perPacket)
		return DropOutOfOrder
	case reorder.Held:
		r.q.ctr.OutOfSequence++
		if r.early(p) {
			r.acks.push(answerTo(r.trk.Feedback(), p, m, r.perPacket), r.perPacket)
			return DropOutOfOrder
		}
		if r.keeps(p) {
			return r.keep(p, m)
		}
		// What cannot be done now may be possible, or its turn to be refused, when
		// it comes again: until then it counts as lost.
		take := r.take
		if r.buffer.trk != nil {
			take = r.hold
		}
		if f := take(p); f != nil {
			return f.drop
		}
	default:
		if f := r.take(p); f != nil {
			r.refuse(now, p.PSN, consumes(p.Opcode) && p.Ext.RecvSN == r.recvs.base&psnMask, f)
			return f.drop
		}
	}
	before := r.trk.Expected()
	if !r.track(p, m) {
		return DropOutOfOrder
	}
	r.release(now, before, p.Opcode.Ends())
	return Accepted
}

// take does what does not wait for other packets.
func (r *extResponder) take(p *bth.Packet) *refusal {
	if f := r.q.resp.checkEnabled(p.Opcode); f != nil {
		return f
	}
	switch {
	case p.Opcode.IsWrite():
		return r.takeWrite(p)
	case p.Opcode.IsSend():
		return r.takeSend(p)
	}
	return r.takeQuery(p)
}

// track tells the tracker of a packet that has been taken and parks what has to wait.
// It returns false if the tracker has no room after all: the packet counts as lost.
func (r *extResponder) track(p *bth.Packet, m RxMeta) bool {
	v, _ := r.trk.Receive(p.PSN, counts(p.Opcode))
	r.acks.push(answerTo(r.trk.Feedback(), p, m, r.perPacket), r.perPacket)
	if v == reorder.Beyond {
		return false
	}
	if p.Opcode.IsSend() {
		r.inboxOf(p.Ext.RecvSN).packets++
	}
	if v == reorder.Held && r.buffer.trk != nil && p.Opcode.HasPayload() {
		r.buffer.store(p)
	}
	if p.Opcode.Ends() {
		r.park(p)
	}
	return true
}

// counts reports whether the MSN counts a packet of o when everything before it has
// arrived. READs and atomics count when they leave the Read WQE buffer.
func counts(o bth.Opcode) bool { return o.Ends() && (o.IsSend() || o.IsWrite()) }

// consumes reports whether a packet of o completes a receive work request if it is the
// last one of its message.
func consumes(o bth.Opcode) bool { return o.IsSend() || o.IsWrite() && o.HasImm() }

// refuse answers a request that is next and is not executed; own says that it consumes the
// oldest receive, which tells why. All NAKs but RNR break the
// queue pair; the NAK still leaves.
func (r *extResponder) refuse(now mono.Time, psn bth.PSN, own bool, f *refusal) {
	if f == notReady {
		r.q.ctr.OutOfBuffer++
		r.q.ctr.SendRNRErr++
		r.nak, r.nakPSN = f.nak|bth.Syndrome(r.q.attr.MinRNRTimer&0x1f), psn
		return
	}
	r.q.resp.countRefusal(f)
	r.nak, r.nakPSN = f.nak, psn
	r.q.resp.parting = true
	if in := r.recvs.oldest(); in != nil && own {
		r.q.resp.in.wqe.WRID = in.wqe.WRID
		r.recvs.base++
		r.q.resp.completeInError(f.status)
	} else {
		r.q.host.Notify(f.event)
	}
	r.q.enterError(now)
}

// flush completes in error what has been taken; the queue pair breaks.
func (r *extResponder) flush() {
	for in := r.recvs.oldest(); in != nil; in = r.recvs.oldest() {
		r.q.resp.in.wqe.WRID = in.wqe.WRID
		r.recvs.base++
		r.q.resp.completeInError(StatusWRFlushErr)
	}
	r.parked = r.parked[:0]
	r.acks.clear()
	r.buffer.clear()
	if !r.q.resp.parting {
		r.nak = 0
		r.answers.reset()
	}
}

// pollAck fills t with the next acknowledgement or NAK.
func (r *extResponder) pollAck(t *Transmit) bool {
	a := bth.AETH{Syndrome: bth.SyndromeACK, MSN: r.msn}
	if r.nak != 0 {
		a.Syndrome = r.nak
		r.nak = 0
		r.q.acknowledge(t, bth.OpcodeExtAck, &bth.Feedback{}, r.nakPSN, a)
		return true
	}
	f, ok := r.acks.pop()
	if !ok {
		return false
	}
	r.q.acknowledge(t, bth.OpcodeExtAck, &f, r.trk.Expected(), a)
	return true
}
