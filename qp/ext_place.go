package qp

import "roced/bth"

// maxRecvAhead is how many receive work requests may be taken before the oldest of them
// completes: messages that arrive ahead of others need theirs (IRN 5.3.2).
const maxRecvAhead = 256

// recvWindow holds the receive work requests that have been taken and have not
// completed, by recv_WQE_SN.
type recvWindow struct {
	ring       []inbox // its length is a power of two
	base, next uint32  // sequence numbers of the oldest and of the next to take
}

// inboxOf returns the receive work request with a sequence number, nil if it has not
// been posted, is too far ahead, or has completed.
func (r *extResponder) inboxOf(sn uint32) *inbox {
	w := &r.recvs
	ahead := (sn - w.base) & psnMask
	if ahead >= maxRecvAhead {
		return nil
	}
	for w.next-w.base <= ahead {
		w.makeRoom()
		in := w.at(w.next)
		in.wqe.SGEs = in.wqe.SGEs[:0]
		if !r.q.host.NextRecv(&in.wqe) {
			return nil
		}
		in.taken, in.packets = true, 0
		in.measure(r.q)
		w.next++
	}
	return w.at(w.base + ahead)
}

// measure adds up the list; taken becomes false if it cannot be used.
func (in *inbox) measure(q *QP) {
	in.room = 0
	if len(in.wqe.SGEs) > int(q.cfg.MaxRecvSGE) && !q.cfg.HasSRQ || len(in.wqe.SGEs) > MaxSGE {
		in.taken = false
		return
	}
	for _, s := range in.wqe.SGEs {
		if s.Length > 0 && !q.host.CheckLocal(s.LKey, s.Addr, s.Length, AccessLocalWrite) {
			in.taken = false
		}
		in.room += uint64(s.Length)
	}
}

// takes reports whether p, of a SEND, belongs to the message that in was taken for.
func (in *inbox) takes(p *bth.Packet) bool {
	first := p.PSN.Add(-int(p.Ext.Offset))
	if in.packets == 0 {
		in.first = first
	}
	return in.first == first
}

func (w *recvWindow) at(i uint32) *inbox { return &w.ring[i&uint32(len(w.ring)-1)] }

func (w *recvWindow) makeRoom() {
	if int(w.next-w.base) < len(w.ring) {
		return
	}
	bigger := make([]inbox, max(2, 2*len(w.ring)))
	for i := w.base; i != w.next; i++ {
		bigger[i&uint32(len(bigger)-1)] = *w.at(i)
	}
	w.ring = bigger
}

// oldest returns the oldest receive work request that has been taken.
func (w *recvWindow) oldest() *inbox {
	if w.base == w.next {
		return nil
	}
	return w.at(w.base)
}

func (w *recvWindow) clear() { w.base, w.next = 0, 0 }

// checkWrite judges the lengths of a packet of a WRITE.
func (r *extResponder) checkWrite(p *bth.Packet) *refusal {
	n, h := uint32(len(p.Payload)), &p.RETH
	if f := r.checkLength(p); f != nil {
		return f
	}
	if h.Length > MaxMessage || p.Opcode.Ends() && h.Length != n || !p.Opcode.Ends() && h.Length <= n {
		return badLength
	}
	return nil
}

// takeWrite places a packet of a WRITE. Each says where it belongs (IRN 5.3.1).
func (r *extResponder) takeWrite(p *bth.Packet) *refusal {
	n, h := uint32(len(p.Payload)), &p.RETH
	if f := r.checkWrite(p); f != nil {
		return f
	}
	if p.Ext.Flags&bth.XHasMsg == 0 {
		return badSequence
	}
	if p.Opcode.HasImm() {
		if p.Ext.Flags&bth.XHasRecvSN == 0 {
			return badSequence
		}
		if r.inboxOf(p.Ext.RecvSN) == nil {
			return notReady
		}
	}
	if n > 0 && (!r.q.host.CheckRemote(h.RKey, h.VA, n, AccessRemoteWrite) || !r.q.host.WriteRemote(h.RKey, h.VA, p.Payload)) {
		return badAccess
	}
	return nil
}

// takeSend places a packet of a SEND into its receive work request.
func (r *extResponder) takeSend(p *bth.Packet) *refusal {
	const fields = bth.XHasMsg | bth.XHasRecvSN
	if p.Ext.Flags&fields != fields {
		return badSequence
	}
	if f := r.checkLength(p); f != nil {
		return f
	}
	off := uint64(p.Ext.Offset) * uint64(r.q.mtu)
	if off+uint64(len(p.Payload)) > MaxMessage {
		return badLength
	}
	in := r.inboxOf(p.Ext.RecvSN)
	switch {
	case in == nil:
		return notReady
	case !in.taken:
		return badBuffer
	case off+uint64(len(p.Payload)) > in.room:
		return shortBuffer
	}
	if !in.takes(p) {
		return badSequence
	}
	if !r.scatter(in, uint32(off), p.Payload) {
		return badBuffer
	}
	return nil
}

// checkLength: all packets of a message but the last are full, that of a longer message
// is not empty (IBTA vol.1 9.7.4.1.6).
func (r *extResponder) checkLength(p *bth.Packet) *refusal {
	n := len(p.Payload)
	if n > r.q.mtu || !p.Opcode.Ends() && n != r.q.mtu || p.Opcode.IsLast() && n == 0 {
		return badLength
	}
	return nil
}

// scatter places p at off of the list of in.
func (r *extResponder) scatter(in *inbox, off uint32, p []byte) bool {
	for i := 0; len(p) > 0; i++ {
		s := &in.wqe.SGEs[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(uint32(len(p)), s.Length-off)
		if !r.q.host.WriteLocal(s.LKey, s.Addr+uint64(off), p[:n]) {
			return false
		}
		p, off = p[n:], 0
	}
	return true
}
