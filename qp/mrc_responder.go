package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// mrcResponder is the admission of MRC, as far as it differs from that of the extended transports: packets have METH and the
// RETH of their message, and two kinds of acknowledgements answer them. SACKs report packets, Transport ACKs report
// messages that have been executed.
type mrcResponder struct {
	*anyOrder
	trk *reorder.MRC

	received   uint64 // bytes of all packets, with their headers
	unreported uint32 // likewise, since the last SACK
	told       uint32 // messages that the last Transport ACK has reported
	due        bool   // a Transport ACK is due
	path       uint32 // of the last packet; SACKs and Transport ACKs leave on paths that work
	waiting    int    // WRITEs with immediate data that have not been executed
	immediates uint16 // that have been executed
	msn, rqmsn uint16 // first numbers of the peer: 0 or 1
}

// tooManyImms refuses a WRITE with immediate data beyond the limit.
//
// Choice: the sources leave the NAK code open.
var tooManyImms = &refusal{DropNoRecv, bth.SyndromeInvalidRequest, StatusRemInvReqErr, EventQPReqErr}

// reset clears all state.
func (x *mrcResponder) reset() {
	x.anyOrder.reset()
	*x = mrcResponder{anyOrder: x.anyOrder, trk: x.trk}
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
		x.report(p, m)
		x.due = x.due || p.PSN.Before(x.trk.Expected())
		return verdict{drop: DropDuplicate}
	case reorder.Beyond:
		c.OutOfSequence++
		x.nack(p, m, bth.MRCOutOfWindow)
		return verdict{drop: DropOutOfOrder}
	}
	switch {
	case consumes(p.Opcode) && x.waiting >= x.trk.MaxImmediates():
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

// trimmed answers p, of which only BTH, METH and perhaps TSETH have arrived, unless the whole packet has arrived.
func (x *mrcResponder) trimmed(p *bth.Packet, m arrival, where Trim) {
	reason := bth.MRCTrimmed
	if where == TrimmedLastHop {
		reason = bth.MRCTrimmedLastHop
	}
	switch x.trk.Classify(p.PSN) {
	case reorder.Duplicate:
		x.report(p, m)
	case reorder.Beyond:
		x.nack(p, m, bth.MRCOutOfWindow)
	default:
		x.nack(p, m, reason)
	}
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
	n := mrcLen(p)
	x.received += uint64(n)
	x.unreported += n
	if p.AckReq || p.ReTx || m.ce || x.unreported >= x.trk.Threshold() {
		x.report(p, m)
	}
	if p.Opcode.Starts() {
		q.ctr.RxWriteRequests++
	}
	if p.Opcode.Ends() {
		x.hold(p, t, false)
		if consumes(p.Opcode) {
			x.waiting++
		}
	}
}

// mrcLen returns the bytes that p counts as received: the length in its UDP header and 40.
func mrcLen(p *bth.Packet) uint32 {
	const udp, crc, lower = 8, 4, 40
	n := len(p.Payload)
	return uint32(udp + p.HeaderLen() + n + -n&3 + crc + lower)
}

// consistent reports whether e continues the messages that have been executed. It takes the receive of e.
//
// Choice: one source begins to count at 0, one at 1. We send 0 and accept both.
func (x *mrcResponder) consistent(e *oooEntry) bool {
	if e.first != x.first || !follows(e.msn, x.r.msn, &x.msn) {
		return false
	}
	return !consumes(e.opcode) || follows(e.sn, uint32(x.immediates), &x.rqmsn) && x.r.nextRecv() != nil
}

// follows reports whether sn is that of the message behind done others. The number of the first message is learnt.
func follows(sn, done uint32, first *uint16) bool {
	if done == 0 && sn <= 1 {
		*first = uint16(sn)
	}
	return uint16(sn) == uint16(done)+*first
}

// completed records that the message of e has been executed.
func (x *mrcResponder) completed(e *oooEntry) {
	if consumes(e.opcode) {
		x.waiting--
		x.immediates++
	}
}

// probed answers a probe.
func (x *mrcResponder) probed(p *bth.Packet, m *RxMeta) Drop {
	f := x.acks.push()
	x.trk.Feedback(f)
	f.ProbeReply, f.ProbeID, f.HasSACK = true, p.PETH.ProbeID, false
	f.Timestamp = p.PETH.TSETH.Timestamp
	x.complete(f, arrival{m.CE, m.Path})
	return Accepted
}

// report makes a SACK of p due.
func (x *mrcResponder) report(p *bth.Packet, m arrival) {
	f := x.acks.push()
	x.trk.Feedback(f)
	f.HasSACK, f.SACK, f.Timestamp = true, p.PSN, p.TSETH.Timestamp
	x.complete(f, m)
	x.unreported = 0
}

// nack makes a NACK of p due.
func (x *mrcResponder) nack(p *bth.Packet, m arrival, reason bth.MRCReason) {
	f := x.acks.push()
	f.HasSACK, f.Refused, f.SACK, f.Timestamp = true, true, p.PSN, p.TSETH.Timestamp
	f.Receiver.Reason = uint8(reason)
	x.complete(f, m)
}

// complete adds the marks of the packet that triggered f, and the bytes received.
func (x *mrcResponder) complete(f *reorder.Feedback, m arrival) {
	f.ECE, f.VP = m.ce, m.path
	if !x.r.q.req.onePath {
		x.path = m.path
	}
	f.Receiver.Received = uint32((x.received+bth.MRCReceivedUnit-1)/bth.MRCReceivedUnit) & mask24
	if a := &x.acks; a.Len() > x.r.q.cfg.Tuning.ackDepth() {
		a.pop()
	}
}

// executed is called when memory for which messages waited has become available.
func (x *mrcResponder) executed() { x.due = x.due || x.r.msn != x.told }

// pending reports whether an acknowledgement is due. If the last completion has woken a program, its Transport ACK is.
func (x *mrcResponder) pending() bool {
	return x.acks.Len() > 0 || x.syndrome != 0 || x.due || x.r.urgent && x.r.msn != x.told
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
	case x.due || r.msn != x.told:
		x.transportAck(t, x.first.Add(-1), bth.SyndromeACK)
	default:
		encodeMRC(q, x.acks.pop(), t)
	}
	return true
}

// transportAck builds a Transport ACK, or a NAK.
func (x *mrcResponder) transportAck(t *Transmit, psn bth.PSN, s bth.Syndrome) {
	q, r := x.r.q, x.r
	q.headerMRC(&t.Packet, bth.OpAcknowledge, psn)
	t.Path = x.path
	t.Packet.AETH = bth.AETH{Syndrome: s, MSN: r.msn}
	x.told, x.due, r.urgent = r.msn, false, false
}

// headerMRC sets the fields of the BTH that packets of MRC have.
func (q *QP) headerMRC(p *bth.Packet, op bth.Opcode, psn bth.PSN) {
	q.header(p, op, psn)
	p.ReTx, p.Stamped = false, false
}

// stampMRC returns the timestamp of an instant.
func stampMRC(now mono.Time) uint16 { return uint16(now / bth.MRCTimestampUnit) }
