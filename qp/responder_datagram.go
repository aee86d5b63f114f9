package qp

import "roced/bth"

// receiveUC takes a packet of an unreliable connection (IBTA vol.1 9.8.2): a
// message that has lost a packet is dropped, and reception goes on with the next
// FIRST or ONLY.
func (r *responder) receiveUC(p *bth.Packet) Drop {
	if p.PSN != r.trk.Expected() {
		r.q.ctr.OutOfSequence++
		r.breakUC()
	}
	r.trk.Reset(p.PSN.Next())
	if p.Opcode.Starts() {
		r.breakUC() // its end has been lost
	} else if !r.msg.active {
		return DropOutOfOrder // the rest of a broken message
	}
	f := r.check(p)
	if f == nil {
		f = r.place(p)
	}
	if f != nil {
		r.msg.active = true
		r.breakUC()
		if f == notReady {
			r.q.ctr.OutOfBuffer++
		}
		return f.drop
	}
	if p.Opcode.Ends() {
		r.msn = (r.msn + 1) & psnMask
		r.finish(p)
	}
	return Accepted
}

// breakUC drops the message in progress. Its receive work request is kept for
// the next message.
func (r *responder) breakUC() {
	if r.msg.active {
		r.msg.active = false
		r.q.ctr.UCDroppedMessages++
	}
}

// grhLen is what a datagram's receive buffer begins with (IBTA vol.1 11.4.1.2).
const grhLen = 40

// receiveUD takes a datagram (IBTA vol.1 9.8.3). One that does not fit into the
// receive buffer is dropped and the buffer kept, as rxe does: a stranger should
// not be able to break the queue pair.
func (r *responder) receiveUD(p *bth.Packet, m RxMeta) Drop {
	if p.DETH.QKey != r.q.attr.QKey {
		r.q.ctr.UDDropped++
		return DropQKey // 10.2.5
	}
	if f := r.takeRecv(); f != nil {
		r.q.ctr.UDDropped++
		if f == notReady {
			r.q.ctr.OutOfBuffer++
			return DropNoRecv
		}
		r.in.taken = false
		r.completeInError(r.in.wqe.WRID, StatusLocProtErr)
		return f.drop
	}
	if uint64(grhLen+len(p.Payload)) > r.in.room {
		r.q.ctr.UDDropped++
		r.q.ctr.RespLocalLengthError++
		return DropLength
	}
	r.in.taken = false
	if r.skipGRH(m.GRH) != nil || r.scatter(p.Payload) != nil {
		r.completeInError(r.in.wqe.WRID, StatusLocProtErr)
		return DropNoRecv
	}
	r.deliver(p, CQE{
		WRID: r.in.wqe.WRID, Opcode: WCRecv, Flags: WCGRH, ByteLen: uint32(grhLen + len(p.Payload)),
		Solicited: p.Solicited, QPN: uint32(r.q.cfg.QPN), SrcQP: uint32(p.DETH.SrcQP),
	})
	return Accepted
}

// noGRH stands in for a missing GRH.
var noGRH [grhLen]byte

func (r *responder) skipGRH(grh []byte) *refusal {
	if len(grh) != grhLen {
		grh = noGRH[:]
	}
	return r.scatter(grh)
}
