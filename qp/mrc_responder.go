package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
)

// mrcResponder is the admission of MRC, as far as it differs from that of the extended transports: packets have METH and the
// RETH of their message, and two kinds of acknowledgements answer them. SACKs report packets, Transport ACKs report
// messages that have been executed.
type mrcResponder struct {
	*anyOrder
	trk   *reorder.MRC
	sacks mrc.SACKs

	reported uint32 // messages that the last Transport ACK has reported
	due      bool   // a Transport ACK is due

	// WRITEs with immediate data: those that have not been executed, and the number of those that have.
	waitingImms  int
	executedImms uint16

	msn, rqmsn uint16 // the peer's numbers of its first message and of its first WRITE with immediate data: 0 or 1
}

// tooManyImms refuses a WRITE with immediate data beyond the limit.
//
// Choice: the sources leave the NAK code open.
var tooManyImms = &refusal{DropNoRecv, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}

// reset clears all state.
func (x *mrcResponder) reset() {
	x.anyOrder.reset()
	x.sacks.Reset()
	*x = mrcResponder{anyOrder: x.anyOrder, trk: x.trk, sacks: x.sacks}
}

// flush implements admission.
func (x *mrcResponder) flush() {
	x.anyOrder.flush()
	x.sacks.Clear()
}

// number sets the numbers of p, a WRITE: its message's, and the offset of a packet that ends one.
func (x *mrcResponder) number(p *bth.Packet) {
	p.Ext.MSN, p.Ext.RecvSN, p.Ext.Offset = uint32(p.METH.MSN), uint32(p.METH.RQMSN), 0
	if p.Opcode.Ends() {
		p.Ext.Offset = packets(p.RETH.Length, x.r.q.mtu) - 1
	}
}

// admit is the admission of a WRITE.
func (x *mrcResponder) admit(_ mono.Time, p *bth.Packet, m arrival, t *target) (v verdict) {
	c := x.r.q.ctr
	switch v.order = x.trk.Classify(p.PSN); v.order {
	case reorder.Duplicate:
		c.DuplicateRequest++
		x.sacks.Report(p, mrc.Marks(m))
		x.due = x.due || p.PSN.Before(x.trk.Expected())
		return verdict{drop: DropDuplicate}
	case reorder.Beyond:
		c.OutOfSequence++
		x.sacks.Refuse(p, mrc.Marks(m), bth.MRCOutOfWindow)
		return verdict{drop: DropOutOfOrder}
	}
	switch {
	case consumes(p.Opcode) && x.waitingImms >= x.trk.MaxImmediates():
		v.refusal = tooManyImms
	case !x.locate(p, t):
		v.refusal = badLength
	}
	return v
}

// refuse implements admission. The sender infers the loss of a packet ahead of a gap, so that no NAK answers it.
func (x *mrcResponder) refuse(_ *bth.Packet, _ arrival, v verdict) bool {
	if v.order != reorder.Held || v.refusal == tooManyImms {
		return true
	}
	x.r.q.ctr.OutOfSequence++
	return false
}

// locate finds the place of the payload of p. It returns false if the length of the message does not fit the opcode.
func (x *mrcResponder) locate(p *bth.Packet, t *target) bool {
	o, mtu, total := p.Opcode, x.r.q.mtu, p.RETH.Length
	t.va, t.rkey, t.left, t.check = p.RETH.VA, p.RETH.RKey, total, uint32(len(p.Payload))
	switch {
	case o.IsOnly():
		return true
	case o.IsLast():
		t.left = (total-1)%mtu + 1
		t.off = total - t.left
	case o.IsMiddle():
		return total > 2*mtu
	}
	return total > mtu
}

// commit records that p has been taken.
func (x *mrcResponder) commit(p *bth.Packet, m arrival, t *target, v verdict) {
	q := x.r.q
	if v.order == reorder.Held {
		q.ctr.OutOfSequence++
	}
	x.trk.Commit(p.PSN, v.order)
	x.sacks.Count(p, mrc.Marks(m))
	if p.Opcode.Ends() {
		x.hold(p, t, false)
		if consumes(p.Opcode) {
			x.waitingImms++
		}
	}
}

// consistent reports whether e continues the messages that have been executed. It takes the receive of e.
//
// Choice: one source begins to count at 0, one at 1. We send 0 and accept both.
func (x *mrcResponder) consistent(e *oooEntry) bool {
	if e.first != x.first || !follows(e.msn, x.r.msn, &x.msn) {
		return false
	}
	return !consumes(e.opcode) || follows(e.sn, uint32(x.executedImms), &x.rqmsn) && x.r.nextRecv() != nil
}

// follows reports whether sn is the number of the message after done others. The peer's first message sets *first.
func follows(sn, done uint32, first *uint16) bool {
	if done == 0 && sn <= 1 {
		*first = uint16(sn)
	}
	return uint16(sn) == uint16(done)+*first
}

// completed records that the message of e has been executed.
func (x *mrcResponder) completed(e *oooEntry) {
	if consumes(e.opcode) {
		x.waitingImms--
		x.executedImms++
	}
}

// onExecuted is called when memory for which messages waited has become available.
func (x *mrcResponder) onExecuted() { x.due = x.due || x.r.msn != x.reported }

// pending reports whether an acknowledgement is due. If the last completion has woken a program, a Transport ACK is due.
func (x *mrcResponder) pending() bool {
	return x.sacks.Len() > 0 || x.syndrome != 0 || x.due || x.r.urgent && x.r.msn != x.reported
}

// poll fills t with the next acknowledgement.
//
// Choice: a Transport ACK precedes each SACK if messages have been executed since the last one.
func (x *mrcResponder) poll(t *Transmit) bool {
	q, r := x.r.q, x.r
	switch {
	case q.state < RTR || q.state == Err && !r.lastNAK || !x.pending():
		return false
	case x.syndrome != 0:
		x.transportAck(t, x.nakPSN, x.syndrome)
		x.syndrome = 0
	case x.due || r.msn != x.reported:
		x.transportAck(t, x.first.Add(-1), bth.SyndromeACK)
	default:
		x.sack(t)
	}
	return true
}

// sack builds the oldest SACK or NACK.
func (x *mrcResponder) sack(t *Transmit) {
	q, f := x.r.q, x.sacks.Oldest()
	x.sacks.Head++
	if !q.req.onePath {
		t.Path = f.VP
	}
	src, dest := q.contexts()
	op, psn := mrc.Encode(f, &t.Packet, src, dest)
	q.headerMRC(&t.Packet, op, psn)
}

// transportAck builds a Transport ACK, or a NAK.
func (x *mrcResponder) transportAck(t *Transmit, psn bth.PSN, s bth.Syndrome) {
	q, r := x.r.q, x.r
	q.headerMRC(&t.Packet, bth.OpAcknowledge, psn)
	if !q.req.onePath {
		t.Path = x.sacks.Path
	}
	t.Packet.AETH = bth.AETH{Syndrome: s, MSN: r.msn}
	x.reported, x.due, r.urgent = r.msn, false, false
}
