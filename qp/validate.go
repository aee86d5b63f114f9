package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// refusal is a reason not to execute a request, with its consequences.
type refusal struct {
	drop   Drop
	nak    bth.Syndrome // RNR without its timer code; 0 for none
	status Status       // of the receive work request in progress
	event  Event        // raised if there is no such request
}

// Refusals of RC (IBTA vol.1 9.7.5.2.4, table 58 and 9.9.3). By the specification, a receive buffer that is too small
// makes the request invalid; rxe answers 0x63.
var (
	badSequence = &refusal{DropOpcode, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	notEnabled  = &refusal{DropAccess, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	badLength   = &refusal{DropLength, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	tooManyRds  = &refusal{DropOpcode, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	misaligned  = &refusal{DropAccess, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}
	badAccess   = &refusal{DropAccess, bth.SyndromeRemoteAccessErr, StatusRemAccessErr, EventQPAccessErr}
	badImmWrite = &refusal{DropAccess, bth.SyndromeRemoteAccessErr, StatusLocAccessErr, EventQPAccessErr}
	badInvalKey = &refusal{DropAccess, 0, StatusRemInvReqErr, EventQPAccessErr} // class J: no NAK (9.9.6.3)
	shortBuffer = &refusal{DropLength, bth.SyndromeInvalidRequest, StatusLocLenErr, EventQPReqErr}
	badBuffer   = &refusal{DropAccess, bth.SyndromeRemoteOpErr, StatusLocProtErr, EventQPFatal}
	notReady    = &refusal{drop: DropNoRecv, nak: bth.SyndromeRNR}
)

// refuse answers the expected request psn, which is not executed. All NAKs but RNR break the queue pair; the NAK is
// its last packet. own means that the oldest receive belongs to this request. That receive completes with the reason;
// otherwise an event reports it (IBTA vol.1 9.9.3, class C).
func (r *responder) refuse(now mono.Time, psn bth.PSN, own bool, f *refusal) Drop {
	if f == notReady {
		r.q.ctr.OutOfBuffer++
		r.q.ctr.SendRNRErr++
		r.adm.nak(f.nak|bth.Syndrome(r.q.attr.MinRNRTimer&0x1f), psn)
		return f.drop
	}
	switch f.nak {
	case bth.SyndromeRemoteAccessErr, 0:
		r.q.ctr.RespRemoteAccessErrors++
	case bth.SyndromeInvalidRequest:
		r.q.ctr.RespRemoteInvalidRequest++
	}
	if f == shortBuffer {
		r.q.ctr.RespLocalLengthError++
	}
	r.fail(now, psn, own, f)
	return f.drop
}

// fail breaks the queue pair because of the request psn.
func (r *responder) fail(now mono.Time, psn bth.PSN, own bool, f *refusal) {
	if f.nak != 0 {
		r.adm.nak(f.nak, psn)
	}
	r.lastNAK = true
	if f == badImmWrite {
		r.nextRecv() // the receive of the request may not have been taken yet
	}
	if own && r.recvs.Oldest() != nil {
		r.completeInError(f.status)
	} else {
		r.q.host.Notify(f.event)
	}
	r.q.enterError(now)
}

// validate checks the headers of a request and the place of its payload.
func (r *responder) validate(p *bth.Packet, t *target) *refusal {
	o, n := p.Opcode, uint32(len(p.Payload))
	write := o.IsWrite()
	if !write && !o.IsSend() {
		return r.validateQuery(p)
	}
	if write && r.q.attr.AccessFlags&AccessRemoteWrite == 0 {
		return notEnabled
	}
	// FIRST and MIDDLE are full, LAST is not empty (9.7.4.1.6); no message is longer than 2 GiB.
	if n > r.q.mtu || !o.Ends() && n != r.q.mtu || o.IsLast() && n == 0 || uint64(t.off)+uint64(n) > MaxMessage {
		return badLength
	}
	if !write {
		return nil
	}
	if t.left > MaxMessage || o.Ends() && t.left != n || !o.Ends() && t.left <= n {
		return badLength
	}
	if t.check > 0 && !r.q.host.CheckRemote(t.rkey, t.va, t.check, AccessRemoteWrite) {
		return badWrite(o)
	}
	return nil
}

// badWrite refuses a WRITE to memory that the peer may not access. Immediate data complete a receive, with a local
// access error (IBTA vol.1 11.6.2).
func badWrite(o bth.Opcode) *refusal {
	if o.HasImm() {
		return badImmWrite
	}
	return badAccess
}

// neededBy returns the access that a queue pair must allow for a request that is neither a SEND nor a WRITE.
func neededBy(p *bth.Packet) Access {
	switch o := p.Opcode; {
	case o.IsAtomicWrite():
		return AccessRemoteWrite
	case o.IsAtomic():
		return AccessRemoteAtomic
	case o.IsFlush():
		return flushAccess(uint64(p.FETH.Type))
	}
	return AccessRemoteRead
}

// flushAccess returns the access to queue pair and region that a FLUSH of a type needs.
func flushAccess(kind uint64) (a Access) {
	if kind&bth.FlushGlobal != 0 {
		a |= AccessFlushGlobal
	}
	if kind&bth.FlushPersistent != 0 {
		a |= AccessFlushPersistent
	}
	return a
}

// validFlush reports whether the type, level and length of a FLUSH are defined.
func validFlush(f bth.FETH, length uint32) bool {
	const known = bth.FlushGlobal | bth.FlushPersistent
	return f.Type&known != 0 && f.Type&^known == 0 && f.Level <= bth.FlushMR && length <= MaxMessage
}

// validateQuery checks the headers of a READ, an atomic, an ATOMIC WRITE or a FLUSH; query checks its memory.
func (r *responder) validateQuery(p *bth.Packet) *refusal {
	need := neededBy(p)
	switch {
	case r.q.attr.AccessFlags&need != need:
		return notEnabled // IBTA vol.1 9.7.4.1.4
	case !r.adm.room():
		return tooManyRds
	case p.Opcode.IsAtomic():
		return nil
	case p.Opcode.IsFlush() && !validFlush(p.FETH, p.RETH.Length),
		p.RETH.Length > MaxMessage,
		p.Opcode.IsAtomicWrite() && (p.RETH.Length != atomicWriteLen || len(p.Payload) != atomicWriteLen):
		return badLength
	}
	return nil
}
