package qp

import (
	"roced/bth"
	"roced/mono"
)

// refusal says why a request is not executed and what follows from it.
type refusal struct {
	drop   Drop
	nak    bth.Syndrome // RNR without its timer code
	status Status       // of the receive work request in progress
	event  Event        // raised if there is none
}

// Refusals of RC (IBTA vol.1 9.7.5.2.4, table 58 and 9.9.3). Too small a receive
// buffer is an invalid request by the specification; rxe answers 0x63.
var (
	badSequence = &refusal{DropOpcode, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	notEnabled  = &refusal{DropAccess, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	badLength   = &refusal{DropLength, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	tooManyRds  = &refusal{DropOpcode, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	misaligned  = &refusal{DropAccess, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	badAccess   = &refusal{DropAccess, bth.SyndromeRemoteAccessErr, StatusRemAccessErr, EventQPAccessErr}
	badInvalKey = &refusal{DropAccess, bth.SyndromeRemoteAccessErr, StatusRemInvReqErr, EventQPAccessErr}
	shortBuffer = &refusal{DropLength, bth.SyndromeInvalidRequest, StatusLocLenErr, EventQPReqErr}
	badBuffer   = &refusal{DropAccess, bth.SyndromeRemoteOpErr, StatusLocProtErr, EventQPFatal}
	notReady    = &refusal{drop: DropNoRecv, nak: bth.SyndromeRNR}
)

// refuse answers a request of RC that is not executed. All NAKs but RNR break
// the queue pair; the NAK still leaves.
func (r *responder) refuse(now mono.Time, p *bth.Packet, f *refusal) Drop {
	if f == notReady {
		r.q.ctr.OutOfBuffer++
		r.q.ctr.SendRNRErr++
		r.rnr = true
		r.sendNAK(f.nak | bth.Syndrome(r.q.attr.MinRNRTimer&0x1f))
		return f.drop
	}
	r.countRefusal(f)
	r.fail(now, f)
	return f.drop
}

func (r *responder) countRefusal(f *refusal) {
	switch f.nak {
	case bth.SyndromeRemoteAccessErr:
		r.q.ctr.RespRemoteAccessErrors++
	case bth.SyndromeInvalidRequest:
		r.q.ctr.RespRemoteInvalidRequest++
	}
	if f == shortBuffer {
		r.q.ctr.RespLocalLengthError++
	}
}

// fail breaks the queue pair, with a NAK as its last word. The receive work
// request in progress says why, or an event if there is none (IBTA vol.1 9.9.3,
// class C).
func (r *responder) fail(now mono.Time, f *refusal) {
	r.sendNAK(f.nak)
	r.parting = true
	if r.in.taken {
		r.completeInError(f.status)
	} else {
		r.q.host.Notify(f.event)
	}
	r.q.enterError(now)
}

// failLocal breaks a queue pair of UC or UD over its own receive work request
// (IBTA vol.1 9.9.3, class A).
func (r *responder) failLocal(now mono.Time, f *refusal) {
	r.completeInError(f.status)
	r.q.enterError(now)
}

// check judges a request of RC by what stands in its headers.
func (r *responder) check(p *bth.Packet) *refusal {
	if f := r.checkSequence(p.Opcode); f != nil {
		return f
	}
	if f := r.checkEnabled(p.Opcode); f != nil {
		return f
	}
	switch {
	case p.Opcode.IsReadRequest():
		return r.checkRead(p)
	case p.Opcode.IsAtomicWrite():
		return r.checkAtomicWrite(p)
	case p.Opcode.IsAtomic():
		return r.checkAtomic(p)
	case p.Opcode.IsWrite():
		if f := r.checkPayload(p); f != nil {
			return f
		}
		return r.checkWrite(p)
	}
	return r.checkPayload(p)
}

// checkSequence: FIRST or ONLY begin a message, MIDDLE or LAST continue one of
// their kind (IBTA vol.1 9.7.4.1.3).
func (r *responder) checkSequence(o bth.Opcode) *refusal {
	if r.msg.active == o.Starts() || r.msg.active && r.msg.write != o.IsWrite() {
		return badSequence
	}
	return nil
}

// checkEnabled: the queue pair must allow the operation (IBTA vol.1 9.7.4.1.4).
func (r *responder) checkEnabled(o bth.Opcode) *refusal {
	var need Access
	switch {
	case o.IsWrite(), o.IsAtomicWrite():
		need = AccessRemoteWrite
	case o.IsReadRequest():
		need = AccessRemoteRead
	case o.IsAtomic():
		need = AccessRemoteAtomic
	}
	if r.q.attr.AccessFlags&need != need {
		return notEnabled
	}
	return nil
}

// checkPayload: FIRST and MIDDLE are full, LAST is not empty (IBTA vol.1
// 9.7.4.1.6); no message is longer than 2 GiB.
func (r *responder) checkPayload(p *bth.Packet) *refusal {
	n := len(p.Payload)
	switch {
	case n > r.q.mtu,
		!p.Opcode.Ends() && n != r.q.mtu,
		p.Opcode.IsLast() && n == 0,
		uint64(r.msg.soFar(p))+uint64(n) > MaxMessage:
		return badLength
	}
	return nil
}

// soFar is the number of bytes of p's message received before it.
func (m *message) soFar(p *bth.Packet) uint32 {
	if p.Opcode.Starts() {
		return 0
	}
	return m.got
}

// checkWrite: the RETH's length is what arrives, and all of it may be written.
func (r *responder) checkWrite(p *bth.Packet) *refusal {
	n := uint32(len(p.Payload))
	left := r.msg.left
	if p.Opcode.Starts() {
		left = p.RETH.Length
	}
	if left > MaxMessage || p.Opcode.Ends() && left != n || !p.Opcode.Ends() && left <= n {
		return badLength
	}
	if p.Opcode.Starts() && left > 0 && !r.q.host.CheckRemote(p.RETH.RKey, p.RETH.VA, left, AccessRemoteWrite) {
		return badAccess
	}
	return nil
}

func (r *responder) checkRead(p *bth.Packet) *refusal {
	switch {
	case !r.rd.room(uint64(r.q.attr.MaxDestRdAtomic)):
		return tooManyRds
	case p.RETH.Length > MaxMessage:
		return badLength
	case p.RETH.Length > 0 && !r.q.host.CheckRemote(p.RETH.RKey, p.RETH.VA, p.RETH.Length, AccessRemoteRead):
		return badAccess
	}
	return nil
}

func (r *responder) checkAtomic(p *bth.Packet) *refusal {
	switch {
	case !r.rd.room(uint64(r.q.attr.MaxDestRdAtomic)):
		return tooManyRds
	case p.AtomicETH.VA%8 != 0:
		return misaligned // IBTA vol.1 9.4.5
	case !r.q.host.CheckRemote(p.AtomicETH.RKey, p.AtomicETH.VA, 8, AccessRemoteAtomic):
		return badAccess
	}
	return nil
}

func (r *responder) checkAtomicWrite(p *bth.Packet) *refusal {
	switch {
	case !r.rd.room(uint64(r.q.attr.MaxDestRdAtomic)):
		return tooManyRds
	case p.RETH.Length != atomicWriteLen, len(p.Payload) != atomicWriteLen:
		return badLength
	case p.RETH.VA%atomicWriteLen != 0:
		return misaligned
	case !r.q.host.CheckRemote(p.RETH.RKey, p.RETH.VA, atomicWriteLen, AccessRemoteWrite):
		return badAccess
	}
	return nil
}
