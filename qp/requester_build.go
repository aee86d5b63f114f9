package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/mapped"
)

// Services that support an operation, one bit each.
const (
	onRC = 1 << RC
	onUC = 1 << UC
	onUD = 1 << UD
)

// workOp describes a send work request operation (packets: IBTA vol.1 table 38; services: 9.3 to 9.6).
type workOp struct {
	services                  uint8
	kind                      kind
	first, middle, last, only bth.Opcode
	completion                WCOpcode
}

var workOps = [...]workOp{
	WRWrite: {onRC | onUC, kindData, bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLast, bth.OpWriteOnly, WCWrite},
	WRWriteImm: {
		onRC | onUC, kindData,
		bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLastImm, bth.OpWriteOnlyImm, WCWrite,
	},
	WRSend: {onRC | onUC | onUD, kindData, bth.OpSendFirst, bth.OpSendMiddle, bth.OpSendLast, bth.OpSendOnly, WCSend},
	WRSendImm: {
		onRC | onUC | onUD, kindData,
		bth.OpSendFirst, bth.OpSendMiddle, bth.OpSendLastImm, bth.OpSendOnlyImm, WCSend,
	},
	WRRead:     {services: onRC, kind: kindRead, only: bth.OpReadRequest, completion: WCRead},
	WRCmpSwap:  {services: onRC, kind: kindAtomic, only: bth.OpCmpSwap, completion: WCCmpSwap},
	WRFetchAdd: {services: onRC, kind: kindAtomic, only: bth.OpFetchAdd, completion: WCFetchAdd},
	WRLocalInv: {services: onRC | onUC, kind: kindLocal, completion: WCLocalInv},
	WRBindMW:   {services: onRC | onUC, kind: kindLocal, completion: WCBindMW},
	// A READ response without data answers an ATOMIC WRITE (IBTA vol.1, memory placement extensions). The requester
	// treats it as a READ of length zero.
	WRAtomicWrite: {services: onRC, kind: kindRead, only: bth.OpAtomicWrite, completion: WCAtomicWrite},
	WRFlush:       {services: onRC, kind: kindRead, only: bth.OpFlush, completion: WCFlush}, // likewise
	WRSendWithInv: {onRC, kindData, bth.OpSendFirst, bth.OpSendMiddle, bth.OpSendLastInv, bth.OpSendOnlyInv, WCSend},
}

// atomicWriteLen is the length of an ATOMIC WRITE in bytes.
const atomicWriteLen = 8

// fill builds packet k of s. It returns false if the payload cannot be read. If the memory is not available yet, the
// queue pair is blocked.
func (r *requester) fill(s *slot, k uint32, t *Transmit) bool {
	p, w := &t.Packet, &s.wqe
	t.AH = 0
	switch s.kind {
	case kindRead:
		// A READ that is retransmitted from its middle has an advanced address and length (IBTA vol.1 9.7.5.1.1).
		done := k * r.q.mtu
		r.q.header(p, workOps[w.Opcode].only, s.first.Add(int(k)))
		p.RETH = bth.RETH{VA: w.RemoteVA + uint64(done), RKey: w.RKey, Length: w.Length - done}
		switch w.Opcode {
		case WRAtomicWrite:
			p.RETH.Length, p.Payload = atomicWriteLen, w.Inline
		case WRFlush:
			p.RETH.Length, p.FETH = w.Flush.Length, w.Flush.FETH
		}
		return true
	case kindAtomic:
		r.q.header(p, workOps[w.Opcode].only, s.first)
		p.AtomicETH = bth.AtomicETH{VA: w.RemoteVA, RKey: w.RKey, SwapAdd: w.CompareAdd, Compare: 0}
		if w.Opcode == WRCmpSwap {
			p.AtomicETH.SwapAdd, p.AtomicETH.Compare = w.Swap, w.CompareAdd
		}
		return true
	}
	r.fillData(s, k, p)
	if r.q.cfg.Type == UD {
		r.addressDatagram(w, t)
	}
	off := k * r.q.mtu
	n := min(w.Length-off, r.q.mtu)
	var ok bool
	p.Payload, ok = r.payload(w, off, n)
	return ok
}

// fillData sets the headers of packet k of a SEND or WRITE.
func (r *requester) fillData(s *slot, k uint32, p *bth.Packet) {
	w := &s.wqe
	op, last := &workOps[w.Opcode], k+1 == s.span
	if w.Opcode == WRWrite && r.q.cfg.SingleWrites { // the acknowledgement of the last one completes w
		off := k * r.q.mtu
		r.q.header(p, op.only, s.first.Add(int(k)))
		p.RETH = bth.RETH{VA: w.RemoteVA + uint64(off), RKey: w.RKey, Length: min(w.Length-off, r.q.mtu)}
		return
	}
	code := op.middle
	switch {
	case k == 0 && last:
		code = op.only
	case k == 0:
		code = op.first
	case last:
		code = op.last
	}
	r.q.header(p, code, s.first.Add(int(k)))
	if k == 0 && op.completion == WCWrite {
		p.RETH = bth.RETH{VA: w.RemoteVA, RKey: w.RKey, Length: w.Length}
	}
	if !last {
		return
	}
	switch w.Opcode {
	case WRWriteImm, WRSendImm:
		p.Imm = w.Imm
	case WRSendWithInv:
		p.IETH = w.Imm
	}
	// Only messages that consume a receive request can be solicited (IBTA vol.1 9.2.3).
	p.Solicited = w.Flags&SendSolicited != 0 && w.Opcode != WRWrite
}

// addressDatagram sets the fields of UD packets: the destination, whose number has 24 bits, the address handle and the
// DETH. A Q_Key with its high bit set selects the Q_Key of the queue pair, which only a privileged process can have
// set (IBTA vol.1 10.2.5).
func (r *requester) addressDatagram(w *SendWQE, t *Transmit) {
	qkey := w.RemoteQKey
	if qkey>>31 != 0 {
		qkey = r.q.attr.QKey
	}
	t.AH = w.AH
	t.Packet.DestQP = bth.QPN(w.RemoteQPN) & bth.MaxQPN
	t.Packet.DETH = bth.DETH{QKey: qkey, SrcQP: r.q.cfg.QPN}
}

// payload returns n bytes at off of the message: a view if they lie in one element of the list, else a copy in the
// host's scratch space.
func (r *requester) payload(w *SendWQE, off, n uint32) ([]byte, bool) {
	if n == 0 {
		return nil, true
	}
	if w.Flags&SendInline != 0 {
		return w.Inline[off : off+n], true
	}
	i := 0
	for ; i < len(w.SGEs) && off >= w.SGEs[i].Length; i++ {
		off -= w.SGEs[i].Length
	}
	if i == len(w.SGEs) {
		return nil, false
	}
	if g := &w.SGEs[i]; n <= g.Length-off {
		return r.view(g, off, n)
	}
	buf := r.q.host.Scratch(int(n))
	if len(buf) != int(n) {
		return nil, false
	}
	for at := 0; at < len(buf); i, off = i+1, 0 {
		if i == len(w.SGEs) {
			return nil, false
		}
		g := &w.SGEs[i]
		m := min(g.Length-off, uint32(len(buf)-at))
		if m == 0 {
			continue
		}
		v, ok := r.view(g, off, m)
		if !ok {
			return nil, false
		}
		at += int(m)
		if !r.q.cfg.Phantom && !mapped.Copy(buf[at-int(m):at], v) {
			return nil, false
		}
	}
	return buf, true
}

// view returns n bytes at off of an element of the list.
func (r *requester) view(g *SGE, off, n uint32) ([]byte, bool) {
	v, ok := r.q.host.ReadLocal(g.LKey, g.Addr+uint64(off), int(n), g.Length-off-n)
	if !ok {
		r.q.block()
	}
	return v, ok && len(v) == int(n)
}
