package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// receiveUC takes a packet of an unreliable connection (IBTA vol.1 9.8.2): a
// message that has lost a packet is dropped, and reception goes on with the next
// FIRST or ONLY.
func (a *inOrder) receiveUC(now mono.Time, p *bth.Packet) Drop {
	trk, ctr := a.trk, a.r.q.ctr
	expected, before := trk.Expected(), a.msg
	lost := p.PSN != expected
	if lost || p.Opcode.Starts() {
		a.msg.active = false // its end has been lost
	}
	var f *refusal
	rest := !a.msg.active && !p.Opcode.Starts() // of a broken message
	if !rest {
		trk.Reset(p.PSN)
		if f = a.execute(p); f == later {
			a.msg = before
			trk.Reset(expected)
			return Later
		}
	}
	if lost {
		ctr.OutOfSequence++
	}
	if before.active && (lost || p.Opcode.Starts()) {
		ctr.UCDroppedMessages++
	}
	trk.Reset(p.PSN.Next())
	switch {
	case rest:
		return DropOutOfOrder
	case f == nil:
		return Accepted
	}
	// The receive work request of the message is kept for the next one.
	a.msg.active = false
	ctr.UCDroppedMessages++
	return a.r.dropped(now, f)
}

// dropped handles a packet of UC or UD that cannot be executed.
func (r *responder) dropped(now mono.Time, f *refusal) Drop {
	switch f {
	case notReady:
		r.q.ctr.OutOfBuffer++
	case badBuffer:
		r.completeInError(f.status) // class A (IBTA vol.1 9.9.3)
		r.q.enterError(now)
	case shortBuffer:
		r.q.ctr.RespLocalLengthError++
	}
	return f.drop
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
		if f != later {
			r.q.ctr.UDDropped++
		}
		return r.dropped(now, f)
	}
	var e effect
	e.set(p, grhLen)
	r.deliver(&e, CQE{Flags: WCGRH, ByteLen: e.length, SrcQP: uint32(p.DETH.SrcQP), SL: packetType(m.GRH)})
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
	again, in := r.again(), r.nextRecv()
	switch {
	case in == nil:
		return notReady
	case !in.usable:
		return badBuffer
	case uint64(grhLen+len(payload)) > in.room:
		return shortBuffer
	}
	if len(grh) != grhLen {
		grh = noGRH[:]
	}
	if !again {
		if f := in.fill(r.q, 0, grh); f != nil {
			return f
		}
		if f := in.fill(r.q, grhLen, payload); f != nil {
			return f
		}
	}
	r.unsynced = true
	return r.sync(badBuffer)
}
