package qp

import (
	"roced/bth"
)

// inbox is the receive work request that a message is being placed into.
type inbox struct {
	wqe   RecvWQE
	taken bool
	room  uint64 // bytes of the list
	sge   int    // where the next byte goes
	off   uint32

	// Extended transports: packets of a SEND that have arrived, and where it begins.
	packets uint32
	first   bth.PSN
}

// execute carries out a checked request of RC.
func (r *responder) execute(p *bth.Packet) *refusal {
	switch {
	case p.Opcode.IsReadRequest():
		r.q.ctr.RxReadRequests++
		r.acceptRead(p)
		return nil
	case p.Opcode.IsAtomicWrite():
		r.q.ctr.RxAtomicRequests++
		return r.acceptAtomicWrite(p)
	case p.Opcode.IsAtomic():
		r.q.ctr.RxAtomicRequests++
		return r.acceptAtomic(p)
	}
	if f := r.place(p); f != nil {
		return f
	}
	if p.Opcode.Ends() {
		if f := r.invalidate(p); f != nil {
			return f
		}
	}
	r.advance(p, 1, p.Opcode.Ends())
	if p.Opcode.Ends() {
		r.finish(p)
	}
	if p.AckReq {
		r.wantAck(p.PSN)
	}
	return nil
}

// place takes a receive work request if p needs one and puts the payload where
// it belongs.
func (r *responder) place(p *bth.Packet) *refusal {
	write := p.Opcode.IsWrite()
	if write && p.Opcode.HasImm() && !r.takeRecv() {
		return notReady
	}
	if !write && p.Opcode.Starts() {
		if f := r.openRecv(); f != nil {
			return f
		}
	}
	if p.Opcode.Starts() {
		r.msg = message{active: true, write: write}
		if write {
			r.q.ctr.RxWriteRequests++
			r.msg.va, r.msg.rkey, r.msg.left = p.RETH.VA, p.RETH.RKey, p.RETH.Length
		}
	}
	r.msg.recv = !write || p.Opcode.HasImm()
	n := uint32(len(p.Payload))
	r.msg.got += n
	if !write {
		if f := r.scatter(p.Payload); f != nil {
			return f
		}
		return r.sync(p, badBuffer)
	}
	if n > 0 && !r.q.host.WriteRemote(r.msg.rkey, r.msg.va, p.Payload) {
		return badAccess // the region went away since the first packet
	}
	r.msg.va += uint64(n)
	r.msg.left -= n
	return r.sync(p, badAccess)
}

// sync sees to it that a message whose last packet is p has arrived in memory.
func (r *responder) sync(p *bth.Packet, lost *refusal) *refusal {
	if p.Opcode.Ends() && !r.q.host.Sync() {
		return lost
	}
	return nil
}

// takeRecv takes the next receive work request. One that a broken message of UC
// has left is used first.
func (r *responder) takeRecv() bool {
	if !r.in.taken {
		r.in.taken = r.nextRecv()
	}
	return r.in.taken
}

func (r *responder) nextRecv() bool {
	r.in.wqe.SGEs = r.in.wqe.SGEs[:0]
	return r.q.host.NextRecv(&r.in.wqe)
}

// openRecv takes a receive work request to place data into. WRITE with immediate
// places none, and its receive's list is not looked at.
func (r *responder) openRecv() *refusal {
	if !r.takeRecv() {
		return notReady
	}
	in := &r.in
	in.sge, in.off, in.room = 0, 0, 0
	if len(in.wqe.SGEs) > int(r.q.cfg.MaxRecvSGE) && !r.q.cfg.HasSRQ || len(in.wqe.SGEs) > MaxSGE {
		return badBuffer
	}
	for _, s := range in.wqe.SGEs {
		if s.Length > 0 && !r.q.host.CheckLocal(s.LKey, s.Addr, s.Length, AccessLocalWrite) {
			return badBuffer
		}
		in.room += uint64(s.Length)
	}
	return nil
}

// scatter places p behind what the receive work request already holds.
func (r *responder) scatter(p []byte) *refusal {
	in := &r.in
	if uint64(len(p)) > in.room {
		return shortBuffer
	}
	in.room -= uint64(len(p))
	for len(p) > 0 {
		s := &in.wqe.SGEs[in.sge]
		n := min(uint32(len(p)), s.Length-in.off)
		if n > 0 && !r.q.host.WriteLocal(s.LKey, s.Addr+uint64(in.off), p[:n]) {
			return badBuffer
		}
		p = p[n:]
		if in.off += n; in.off == s.Length {
			in.sge, in.off = in.sge+1, 0
		}
	}
	return nil
}

func (r *responder) invalidate(p *bth.Packet) *refusal {
	if p.Opcode.HasInv() && !r.q.host.Invalidate(p.IETH) {
		return badInvalKey
	}
	return nil
}

// finish ends a message of RC or UC: a completion if it took a receive WQE.
func (r *responder) finish(p *bth.Packet) {
	r.msg.active = false
	if !r.msg.recv {
		return
	}
	r.in.taken = false
	c := CQE{
		WRID: r.in.wqe.WRID, Opcode: WCRecv, ByteLen: r.msg.got, Solicited: p.Solicited,
		QPN: uint32(r.q.cfg.QPN), SrcQP: r.q.attr.DestQPN,
	}
	if r.msg.write {
		c.Opcode = WCRecvWithImm
	}
	r.deliver(p, c)
}

// deliver completes a receive with what p carries besides data.
func (r *responder) deliver(p *bth.Packet, c CQE) {
	switch {
	case p.Opcode.HasImm():
		c.Flags |= WCWithImm
		c.Imm = p.Imm
	case p.Opcode.HasInv():
		c.Flags |= WCWithInv
		c.Imm = p.IETH
	}
	r.q.ctr.RDMARecvs++
	r.q.host.CompleteRecv(c)
}
