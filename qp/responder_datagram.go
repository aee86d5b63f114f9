package qp

import (
	"roced/bth"
	"roced/mono"
)

// receiveUC takes a packet of an unreliable connection (IBTA vol.1 9.8.2): a
// message that has lost a packet is dropped, and reception goes on with the next
// FIRST or ONLY.
func (r *responder) receiveUC(now mono.Time, p *bth.Packet) Drop {
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
		switch f {
		case notReady:
			r.q.ctr.OutOfBuffer++
		case badBuffer:
			r.failLocal(now, f)
		case shortBuffer:
			r.q.ctr.RespLocalLengthError++
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
func (r *responder) receiveUD(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	if p.DETH.QKey != r.q.attr.QKey {
		r.q.ctr.UDDropped++
		return DropQKey // 10.2.5
	}
	if f := r.placeDatagram(p.Payload, m.GRH); f != nil {
		r.q.ctr.UDDropped++
		switch f {
		case notReady:
			r.q.ctr.OutOfBuffer++
		case badBuffer:
			r.failLocal(now, f)
		case shortBuffer:
			r.q.ctr.RespLocalLengthError++
		}
		return f.drop
	}
	r.in.taken = false
	r.deliver(p, CQE{
		WRID: r.in.wqe.WRID, Opcode: WCRecv, Flags: WCGRH, ByteLen: uint32(grhLen + len(p.Payload)),
		Solicited: p.Solicited, QPN: uint32(r.q.cfg.QPN), SrcQP: uint32(p.DETH.SrcQP), SL: packetType(m.GRH),
	})
	return Accepted
}

// packetType is what a completion says of the packet's network header (IBTA annex
// A17.4.5.1), coded in place of a service level, which RoCEv2 has not, as mlx5 does
// and UCX expects: bit 3 is set, and the low bits are 1 for IPv6, 2 for IPv4.
func packetType(grh []byte) uint8 {
	switch {
	case len(grh) != grhLen:
		return 0
	case grh[0]>>4 == 6:
		return 8 | 1
	}
	return 8 | 2
}

// noGRH stands in for a missing GRH.
var noGRH [grhLen]byte

// placeDatagram puts GRH and payload into a receive work request, or nothing.
func (r *responder) placeDatagram(payload, grh []byte) *refusal {
	if f := r.openRecv(); f != nil {
		return f
	}
	if uint64(grhLen+len(payload)) > r.in.room {
		return shortBuffer
	}
	if len(grh) != grhLen {
		grh = noGRH[:]
	}
	if f := r.scatter(grh); f != nil {
		return f
	}
	if f := r.scatter(payload); f != nil {
		return f
	}
	if !r.q.host.Sync() {
		return badBuffer
	}
	return nil
}
