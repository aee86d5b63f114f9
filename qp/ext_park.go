package qp

import (
	"encoding/binary"
	"slices"

	"roced/bth"
	"roced/mono"
)

// parked is what a packet that has arrived does when all before it have: a premature
// completion (IRN 5.3.3), or a READ or atomic in the Read WQE buffer (IRN 5.3.2).
type parked struct {
	psn       bth.PSN
	opcode    bth.Opcode
	solicited bool
	imm       uint32 // immediate data or rkey to invalidate
	length    uint32 // of the message or READ
	va        uint64
	rkey      uint32
	operand   uint64 // swap value, addend or what ATOMIC WRITE writes
	compare   uint64

	// What the packet says of its message, which must agree with the order of PSNs.
	first bth.PSN // of the message
	msn   uint32
	sn    uint32 // recv_WQE_SN or read_WQE_SN
}

// takeQuery checks a READ, an atomic or an ATOMIC WRITE, which are executed in order.
func (r *extResponder) takeQuery(p *bth.Packet) *refusal {
	switch {
	case p.Ext.Flags&bth.XHasReadSN == 0:
		return badSequence
	case !r.answers.room(r.waiting()):
		return tooManyRds
	case p.Opcode.IsAtomic():
		return nil
	case p.RETH.Length > MaxMessage, p.Opcode.IsAtomicWrite() && (p.RETH.Length != atomicWriteLen || len(p.Payload) != atomicWriteLen):
		return badLength
	}
	return nil
}

// waiting is the number of READs and atomics that are parked.
func (r *extResponder) waiting() (n int) {
	for i := range r.parked {
		if !consumes(r.parked[i].opcode) {
			n++
		}
	}
	return n
}

// park keeps what the last packet of a message does until its turn comes.
func (r *extResponder) park(p *bth.Packet) {
	e := parked{psn: p.PSN, opcode: p.Opcode, solicited: p.Solicited, first: p.PSN, msn: r.msn, sn: p.Ext.ReadSN}
	switch {
	case p.Opcode.IsAtomic():
		e.va, e.rkey, e.operand, e.compare = p.AtomicETH.VA, p.AtomicETH.RKey, p.AtomicETH.SwapAdd, p.AtomicETH.Compare
	case p.Opcode.IsAtomicWrite():
		e.va, e.rkey, e.operand = p.RETH.VA, p.RETH.RKey, binary.NativeEndian.Uint64(p.Payload)
	case p.Opcode.IsReadRequest():
		e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.Length
	default:
		e.first, e.msn, e.sn = p.PSN.Add(-int(p.Ext.Offset)), p.Ext.MSN, p.Ext.RecvSN
		e.length = p.Ext.Offset*uint32(r.q.mtu) + uint32(len(p.Payload))
		switch {
		case p.Opcode.HasImm():
			e.imm = p.Imm
		case p.Opcode.HasInv():
			e.imm = p.IETH
		}
	}
	i := len(r.parked)
	for i > 0 && r.parked[i-1].psn.After(e.psn) {
		i--
	}
	r.parked = slices.Insert(r.parked, i, e)
}

// release does what has waited for the packets that are there now. Data are made
// visible first, where a message may have ended: with the packet itself, or with one that
// was there already.
func (r *extResponder) release(now mono.Time, before bth.PSN, ends bool) {
	if n := r.trk.Expected().Diff(before); n == 0 || n == 1 && !ends {
		return
	}
	if psn, f := r.passOn(before); f != nil {
		r.refuse(now, psn, false, f)
		return
	}
	if psn, f := r.placeKept(); f != nil {
		r.refuse(now, psn, false, f)
		return
	}
	if !r.q.host.Sync() {
		r.refuse(now, before, false, badAccess)
		return
	}
	n := 0
	for n < len(r.parked) && r.parked[n].psn.Before(r.trk.Expected()) {
		e := r.parked[n]
		n++
		if f := r.execute(&e); f != nil {
			r.refuse(now, e.psn, consumes(e.opcode), f)
			return
		}
	}
	r.parked = slices.Delete(r.parked, 0, n)
}

// execute carries out what was parked.
func (r *extResponder) execute(e *parked) *refusal {
	if e.first != r.first {
		return badSequence
	}
	message := e.opcode.IsSend() || e.opcode.IsWrite()
	if message && e.msn != r.msn || !message && e.sn != r.readSN {
		return badSequence
	}
	r.first, r.msn = e.psn.Next(), (r.msn+1)&psnMask
	if !message {
		r.readSN = (r.readSN + 1) & psnMask
	}
	switch {
	case consumes(e.opcode):
		return r.complete(e)
	case message:
		return nil
	case e.opcode.IsReadRequest():
		r.q.ctr.RxReadRequests++
		if e.length > 0 && !r.q.host.CheckRemote(e.rkey, e.va, e.length, AccessRemoteRead) {
			return badAccess
		}
		r.answers.add(answer{span: packets(e.length, r.q.mtu), msn: r.msn, va: e.va, rkey: e.rkey, length: e.length})
		return nil
	case e.opcode.IsAtomicWrite():
		return r.atomicWrite(e)
	}
	return r.atomic(e)
}

func (r *extResponder) atomicWrite(e *parked) *refusal {
	r.q.ctr.RxAtomicRequests++
	if e.va%atomicWriteLen != 0 {
		return misaligned
	}
	value := r.word[:]
	binary.NativeEndian.PutUint64(value, e.operand)
	if !r.q.host.CheckRemote(e.rkey, e.va, atomicWriteLen, AccessRemoteWrite) ||
		!r.q.host.WriteRemote(e.rkey, e.va, value) || !r.q.host.Sync() {
		return badAccess
	}
	r.answers.add(answer{span: 1, msn: r.msn})
	return nil
}

func (r *extResponder) atomic(e *parked) *refusal {
	r.q.ctr.RxAtomicRequests++
	if e.va%8 != 0 {
		return misaligned
	}
	if !r.q.host.CheckRemote(e.rkey, e.va, 8, AccessRemoteAtomic) {
		return badAccess
	}
	var orig uint64
	var ok bool
	if e.opcode.Op() == bth.OpCmpSwap {
		orig, ok = r.q.host.CompareSwap(e.rkey, e.va, e.compare, e.operand)
	} else {
		orig, ok = r.q.host.FetchAdd(e.rkey, e.va, e.operand)
	}
	if !ok {
		return badAccess
	}
	r.answers.add(answer{span: 1, msn: r.msn, atomic: true, orig: orig})
	return nil
}

// complete ends a message that consumes a receive work request, the oldest.
func (r *extResponder) complete(e *parked) *refusal {
	in := r.recvs.oldest()
	if in == nil || e.sn != r.recvs.base&psnMask || e.opcode.IsSend() && !in.whole(e) {
		return badSequence
	}
	if e.opcode.HasInv() && !r.q.host.Invalidate(e.imm) {
		return badInvalKey
	}
	c := CQE{WRID: in.wqe.WRID, Opcode: WCRecv, ByteLen: e.length, Solicited: e.solicited, QPN: uint32(r.q.cfg.QPN),
		SrcQP: r.q.attr.DestQPN, Imm: e.imm}
	r.recvs.base++
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
	return nil
}

// whole reports whether all packets of the SEND that e ends have been placed into in.
func (in *inbox) whole(e *parked) bool {
	return in.first == e.first && in.packets == distance(e.first, e.psn)+1
}

// packets is how many packets n bytes take.
func packets(n uint32, mtu int) uint32 {
	return max(1, uint32((uint64(n)+uint64(mtu)-1)/uint64(mtu)))
}
