package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// unreliable is the admission of unreliable connections (IBTA vol.1 9.8.2): it drops a message that has lost a
// packet, and continues with the next FIRST or ONLY.
type unreliable struct{ inOrder }

// admit implements admission.
func (a *unreliable) admit(_ mono.Time, p *bth.Packet, _ arrival, t *target) verdict {
	if !p.Opcode.Starts() && (!a.msg.active || p.PSN != a.trk.Expected()) { // of a broken message
		a.skip(p)
		return verdict{drop: DropOutOfOrder}
	}
	return a.locate(p, t)
}

// countLoss counts the packets and the message lost before p.
func (a *unreliable) countLoss(p *bth.Packet) {
	lost := p.PSN != a.trk.Expected()
	if lost {
		a.r.q.ctr.OutOfSequence++
	}
	if a.msg.active && (lost || p.Opcode.Starts()) {
		a.r.q.ctr.UCDroppedMessages++
	}
}

// skip drops p and the rest of its message.
func (a *unreliable) skip(p *bth.Packet) {
	a.countLoss(p)
	a.msg.active = false
	a.trk.Reset(p.PSN.Next())
}

// commit implements admission.
func (a *unreliable) commit(p *bth.Packet, _ arrival, t *target, _ verdict) {
	a.countLoss(p)
	a.trk.Reset(p.PSN)
	a.advance(p, t)
}

// refuse implements admission. The next message takes the receive work request of the refused one.
func (a *unreliable) refuse(p *bth.Packet, _ arrival, _ verdict) bool {
	a.skip(p)
	a.r.q.ctr.UCDroppedMessages++
	return false
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

// grhLen is the length of the GRH at the beginning of a datagram's receive buffer (IBTA vol.1 11.4.1.2).
const grhLen = 40

// receiveUD takes a datagram (IBTA vol.1 9.8.3). It drops a datagram that does not fit into the receive buffer and
// keeps the buffer, as rxe does: an off-path attacker must not be able to break the queue pair.
func (r *responder) receiveUD(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
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
	r.q.countServed(p.Opcode, uint32(len(p.Payload)))
	r.deliver(&e, CQE{Flags: WCGRH, ByteLen: e.length, SrcQP: uint32(p.DETH.SrcQP), SL: packetType(m.GRH)})
	return Accepted
}

// packetType returns the network header type of a completion (IBTA annex A17.4.5.1). RoCEv2 has no service level, so
// its field carries the type, as mlx5 codes it and UCX expects: bit 3 is set, and the low bits are 1 for IPv6, 2 for
// IPv4.
func packetType(grh []byte) uint8 {
	switch {
	case len(grh) != grhLen:
		return 0
	case grh[0]>>4 == 6:
		return 8 | 1
	}
	return 8 | 2
}

// noGRH replaces a missing GRH.
var noGRH [grhLen]byte

// placeDatagram puts GRH and payload into a receive work request, or nothing.
func (r *responder) placeDatagram(payload, grh []byte) *refusal {
	placed, in := r.memory.retried(), r.nextRecv()
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
	if !placed {
		if f := in.fill(r.q, 0, grh); f != nil {
			return f
		}
		if f := in.fill(r.q, grhLen, payload); f != nil {
			return f
		}
	}
	r.memory.wrote()
	return r.sync(badBuffer)
}
