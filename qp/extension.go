package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// extension is what a queue pair of an extended transport has instead of the admission and
// the framing of RC: docs/reference/wire.md has its packets, docs/design/transports.md its mechanisms.
type extension struct {
	Traits
	out extendedFraming
	in  anyOrder
}

// announce tells a tracker what the sender's agent has added to p (Eunomia 3.2.1). It
// returns false if p is of an earlier connection.
func announce(t reorder.Tracker, p *bth.Packet) bool {
	agent, ok := t.(reorder.Agent)
	return !ok || p.Ext.Flags&bth.XHasHead != 0 && agent.Announce(p.Ext.Head, p.Ext.Flags&bth.XTail != 0)
}

// ackTimeout is the ACK timeout; zero: none. The recoveries of extended transports have timeouts of their own,
// shorter by orders of magnitude, which use no retries up. A retry of theirs is an ACK timeout without progress, so
// that a peer is given up after as long as with RC. They are counted one by one as they pass:
// a process that has stood still for long, and is late for all of them, has lost one.
func (q *QP) ackTimeout() time.Duration { return time.Duration(ackTimeoutNs(q.attr.Timeout)) }

// unexpected takes a packet of an extended transport on a queue pair without one, or the
// other way round. A peer that refuses our transport says so by a NAK of RC.
func (q *QP) unexpected(now mono.Time, p *bth.Packet) Drop {
	if q.x == nil || p.Opcode != bth.TransportRC|bth.OpAcknowledge {
		return q.foreign(now, p)
	}
	if q.sending() && p.AETH.Syndrome == bth.SyndromeInvalidRequest && q.req.outstanding() > 0 && p.PSN == q.req.una {
		q.ctr.ReqRemoteInvalidRequest++
		q.req.fail(now, StatusRemInvReqErr)
	}
	return DropProfile
}

// foreign answers the request of a peer that speaks another transport: a clear error
// instead of retries. Both sides understand a NAK of RC. The request that is expected
// breaks the queue pair like any other that is invalid (IBTA vol.1 9.9.3, class C); others are
// not answered, or strangers could break the peer's end by guessing.
func (q *QP) foreign(now mono.Time, p *bth.Packet) Drop {
	if !p.Opcode.IsRequest() || q.cfg.Type != RC {
		return DropProfile
	}
	if expected := q.resp.trk.Expected(); p.PSN == expected {
		q.resp.refuse(now, expected, false, badSequence)
		q.refuseForeign = true
	}
	return DropProfile
}

// pollForeign fills t with the NAK that foreign has asked for.
func (q *QP) pollForeign(t *Transmit) bool {
	if !q.refuseForeign {
		return false
	}
	q.refuseForeign, q.resp.lastWord = false, false
	q.header(&t.Packet, bth.OpAcknowledge, q.resp.trk.Expected())
	t.Packet.Opcode = bth.TransportRC | bth.OpAcknowledge
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeInvalidRequest}
	return true
}

// decode sets f to what an acknowledgement says.
func decode(p *bth.Packet, f *reorder.Feedback) {
	h := &p.Ext
	*f = reorder.Feedback{}
	f.Expected, f.Gap = p.PSN, p.AETH.Syndrome == bth.SyndromePSNSeqErr
	f.Refused, f.ECE, f.ReTx = h.Flags&bth.XRefused != 0, h.Flags&bth.XECE != 0, h.Flags&bth.XReTx != 0
	if f.HasSACK = h.Flags&bth.XHasSACK != 0; f.HasSACK {
		f.SACK = h.SACK
	}
	if h.Flags&bth.XHasPath != 0 {
		f.VP = h.Path
	}
	if n := h.HoleCount(); n > 0 {
		f.Holes, f.NumHoles = h.Holes, uint8(n)
	}
}

// ackQueue holds the acknowledgements of packets that have arrived. Those that say
// nothing but the expected PSN are merged, unless each of them clocks the sender.
type ackQueue struct{ ring.Ring[reorder.Feedback] }

// push adds one that says nothing yet.
func (a *ackQueue) push() *reorder.Feedback {
	f := a.Push()
	*f = reorder.Feedback{}
	return f
}

// merge makes the last two one.
func (a *ackQueue) merge() {
	if a.Len() < 2 {
		return
	}
	if f, last := a.At(a.Tail-2), a.At(a.Tail-1); plain(f) && plain(last) {
		f.Expected = last.Expected
		a.Tail--
	}
}

// pop removes the oldest, there is one, and returns it until the next push.
func (a *ackQueue) pop() *reorder.Feedback {
	a.Head++
	return a.At(a.Head - 1)
}

// plain reports whether f says nothing but the expected PSN.
func plain(f *reorder.Feedback) bool {
	return !f.Gap && !f.HasSACK && !f.Refused && !f.ECE && !f.ReTx && f.NumHoles == 0
}

// report makes the acknowledgement of p due, with what its tracker says.
func (q *QP) report(to *ackQueue, t reorder.Tracker, p *bth.Packet, m arrival) {
	f := to.push()
	t.Feedback(f)
	q.due(to, f, p, m)
}

// due makes the acknowledgement of p due, f, which has just been pushed. It gets the packet's
// own marks, which MP-RDMA echoes (3.1). If too many wait, the oldest is forgotten: it counts as
// lost on the way.
func (q *QP) due(to *ackQueue, f *reorder.Feedback, p *bth.Packet, m arrival) {
	f.ECE = m.ce
	if q.x.OnlyHoles && f.NumHoles == 0 {
		f.HasSACK = false
	}
	if q.x.PerPacket {
		f.HasSACK, f.SACK, f.VP = true, p.PSN, m.path
		f.ReTx = p.Ext.Flags&bth.XReTx != 0
	}
	if !q.x.PerPacket {
		to.merge()
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
	h.SACK, h.Path = f.SACK, f.VP
	h.SetHoles(f.Holes[:f.NumHoles])
	t.Path = f.VP
}
