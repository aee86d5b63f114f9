package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/reorder"
)

// extension is the part of a queue pair that replaces the admission and the policy of RC in extended transports.
// docs/reference/wire.md has their packets, docs/design/transports.md their mechanisms.
type extension struct {
	Traits
	anyOrder
	out    extendedPolicy
	policy senderPolicy  // out, or that of mrc
	mrc    *mrcExtension // MRC only
	fields fields
}

// requestsFirst implements admission: acknowledgements go first because they clock the peer; requests and responses
// take turns.
func (x *extension) requestsFirst() int {
	switch {
	case x.acks.Len() > 0 || x.syndrome != 0 || x.out.acks.Len() > 0:
		return 0
	case x.responses.idle():
		return nothingDue
	}
	return 1
}

// poll implements admission: acknowledgements of requests, then of responses, then responses.
func (x *extension) poll(now mono.Time, t *Transmit) bool {
	return x.pollAck(t) || x.out.pollAck(t) || x.responses.poll(now, t)
}

// consistent reports whether the packet of e continues the messages that have been executed.
func (x *extension) consistent(e *oooEntry) bool {
	if x.mrc != nil {
		return x.mrc.consistent(e)
	}
	return x.anyOrder.consistent(e)
}

// completed records that the message of e has been executed.
func (x *extension) completed(e *oooEntry) {
	if x.mrc != nil {
		x.mrc.mrcResponder.completed(e)
	}
	x.anyOrder.completed(e)
}

// announce passes the fields that the sender's agent (Eunomia 3.2.1) or transport added to p to a tracker. It returns a
// reason to drop p: it is from an earlier connection, or its fields are malformed.
func (q *QP) announce(t reorder.Tracker, p *bth.Packet) Drop {
	if q.x.fields.Fields != nil && !q.takeData(p, t) {
		return DropFields
	}
	agent, ok := t.(reorder.Agent)
	if ok && (p.Ext.Flags&bth.XHasHead == 0 || !agent.Announce(p.Ext.Head, p.Ext.Flags&bth.XTail != 0)) {
		return DropStaleAck
	}
	return Accepted
}

// ackTimeout returns the ACK timeout, zero for none. The recoveries of extended transports have much shorter timeouts
// of their own, which use no retries. A retry is an ACK timeout without progress, so that a silent peer is given up
// after the same time as with RC. Each OnTimeout uses at most one retry: a process that stalls beyond several
// timeouts loses only one.
func (q *QP) ackTimeout() time.Duration {
	if x := q.mrc(); x != nil && x.modified&mrc.AttrTimeout != 0 {
		return mrc.Duration(x.attr.Timeout)
	}
	return time.Duration(ackTimeoutNs(q.attr.Timeout))
}

// unexpected takes a packet of another transport than that of the queue pair. A peer that refuses an extended transport
// sends a NAK of RC.
func (q *QP) unexpected(now mono.Time, p *bth.Packet) Drop {
	switch {
	case p.Opcode.IsMRC() || q.transport == bth.TransportMRC:
		return DropProfile
	case q.x == nil && !p.Opcode.IsExt():
		return DropOpcode
	case p.Opcode != bth.TransportRC|bth.OpAcknowledge:
		return q.otherProfile(now, p)
	}
	if q.sending() && p.AETH.Syndrome == bth.SyndromeInvalidRequest && q.req.outstanding() > 0 && p.PSN == q.req.una {
		q.ctr.ReqRemoteInvalidRequest++
		q.req.fail(now, StatusRemInvReqErr)
	}
	return DropProfile
}

// otherProfile answers the request of a peer with another transport profile: a clear error instead of retries. Both
// sides understand a NAK of RC. The expected request breaks the queue pair like any other invalid request (IBTA vol.1
// 9.9.3, class C). Other requests get no answer, because an off-path attacker could break the peer's end by guessing.
func (q *QP) otherProfile(now mono.Time, p *bth.Packet) Drop {
	if !p.Opcode.IsRequest() || q.cfg.Type != RC {
		return DropProfile
	}
	if expected := q.resp.trk.Expected(); p.PSN == expected {
		q.resp.refuse(now, expected, false, badSequence)
		q.refuseProfile = true
	}
	return DropProfile
}

// pollProfileNAK fills t with the NAK of otherProfile.
func (q *QP) pollProfileNAK(t *Transmit) bool {
	if !q.refuseProfile {
		return false
	}
	q.refuseProfile, q.resp.lastNAK = false, false
	q.header(&t.Packet, bth.OpAcknowledge, q.resp.trk.Expected())
	t.Packet.Opcode = bth.TransportRC | bth.OpAcknowledge
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeInvalidRequest}
	return true
}

// decode sets f to the content of an acknowledgement. It returns false if the fields of the transport are malformed.
func (q *QP) decode(p *bth.Packet, f *reorder.Feedback) bool {
	h := &p.Ext
	*f = reorder.Feedback{}
	f.Expected, f.Gap = p.PSN, p.AETH.Syndrome == bth.SyndromePSNSeqErr
	f.Refused, f.ECE, f.ReTx = h.Flags&bth.XRefused != 0, h.Flags&bth.XECE != 0, h.Flags&bth.XReTx != 0
	if f.HasSACK = h.Flags&bth.XHasSACK != 0; f.HasSACK {
		f.SACK = h.SACK
	}
	if h.Flags&bth.XHasPath != 0 {
		f.VP = uint32(h.Path)
	}
	if n := h.HoleCount(); n > 0 {
		f.Holes, f.NumHoles = h.Holes, uint8(n)
	}
	return q.x.fields.Fields == nil || q.takeAck(p, f)
}

// ackQueue holds the acknowledgements that are due. Those that carry only the expected PSN are merged, unless each
// of them clocks the sender.
type ackQueue struct{ ring.Ring[reorder.Feedback] }

// push adds an empty acknowledgement.
func (a *ackQueue) push() *reorder.Feedback {
	f := a.Push()
	*f = reorder.Feedback{}
	return f
}

// merge merges the last two acknowledgements if possible. whole means that they carry fields of the transport.
func (a *ackQueue) merge(whole bool) {
	if a.Len() < 2 {
		return
	}
	if f, last := a.At(a.Tail-2), a.At(a.Tail-1); plain(f) && plain(last) {
		f.Expected = last.Expected
		if whole {
			*f = *last
		}
		a.Tail--
	}
}

// pop removes the oldest acknowledgement; there must be one. The result is valid until the next push.
func (a *ackQueue) pop() *reorder.Feedback {
	a.Head++
	return a.At(a.Head - 1)
}

// plain reports whether f carries only the expected PSN.
func plain(f *reorder.Feedback) bool {
	return !f.Gap && !f.HasSACK && !f.Refused && !f.ECE && !f.ReTx && f.NumHoles == 0 && f.Bitmap == 0
}

// queueAck makes the acknowledgement of p due, with the feedback of its tracker.
func (q *QP) queueAck(to *ackQueue, t reorder.Tracker, p *bth.Packet, m arrival) {
	f := to.push()
	t.Feedback(f)
	q.completeAck(to, f, p, m)
}

// completeAck adds the marks of p, which MP-RDMA echoes (3.1), to f, the acknowledgement of p pushed last. If too
// many acknowledgements wait, it drops the oldest, which counts as lost in the network.
func (q *QP) completeAck(to *ackQueue, f *reorder.Feedback, p *bth.Packet, m arrival) {
	f.ECE = m.CE
	if q.x.OnlyHoles && f.NumHoles == 0 && !f.Refused {
		f.HasSACK = false
	}
	if q.x.PerPacket {
		f.HasSACK, f.SACK, f.VP = true, p.PSN, m.Path
		f.ReTx = p.Ext.Flags&bth.XReTx != 0
	} else {
		to.merge(q.x.fields.Fields != nil)
	}
	if to.Len() > q.cfg.Tuning.ackDepth() {
		to.pop()
	}
}

// acknowledge builds an acknowledgement.
func (q *QP) acknowledge(t *Transmit, op bth.Opcode, f *reorder.Feedback, expected bth.PSN, a bth.AETH) {
	p := &t.Packet
	q.header(p, op, expected)
	p.BECN = q.takeEcho()
	if p.AETH = a; f.Gap {
		p.AETH.Syndrome = bth.SyndromePSNSeqErr
	}
	h := &p.Ext
	h.Profile, h.Flags = q.cfg.kind, 0
	set := func(on bool, flag bth.XFlags) {
		if on {
			h.Flags |= flag
		}
	}
	set(f.ECE, bth.XECE)
	set(f.ReTx, bth.XReTx)
	set(f.Refused, bth.XRefused)
	set(f.HasSACK, bth.XHasSACK)
	set(f.VP != 0, bth.XHasPath)
	h.SACK, h.Path = f.SACK, uint16(f.VP)
	h.SetHoles(f.Holes[:f.NumHoles])
	if q.x.fields.Fields != nil && numbered(p.AETH.Syndrome) {
		q.putAck(p, f)
	}
	t.Path = f.VP
}

// numbered reports whether an acknowledgement with syndrome s reports on PSNs; others are errors or RNR NAKs.
func numbered(s bth.Syndrome) bool { return s.IsACK() || s == bth.SyndromePSNSeqErr }
