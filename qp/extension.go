package qp

import (
	"time"

	"roced/bth"
	"roced/mono"
	"roced/reorder"
	"roced/retrans"
)

// extension is what a queue pair of an extended transport has besides the machines of
// RC: docs/wire.md has its packets, docs/transports.md its mechanisms. Requests and
// READ responses have PSNs of their own (IRN 5.2: sPSN and rPSN), which begin with the
// same number, and each direction has a tracker and a recovery.
type extension struct {
	q       *QP
	profile bth.Profile
	out     extRequester
	in      extResponder
	turn    bool // responses go first
}

func (x *extension) init(q *QP) {
	p := &q.cfg.Profile
	x.q, x.profile = q, p.Kind
	x.in = extResponder{q: q, trk: p.Tracker, perPacket: p.Kind == bth.ProfileMPRDMA}
	x.in.answers.init(q)
	if k, ok := p.Tracker.(reorder.LastKeeper); ok {
		x.in.kept.wanted = k.KeepsLast()
	}
	x.out = extRequester{q: q, trk: p.Responses, perPacket: x.in.perPacket}
	x.in.buffer.trk, _ = p.Tracker.(reorder.Buffered)
	x.out.buffer.trk, _ = p.Responses.(reorder.Buffered)
	x.out.holder, _ = p.Recovery.(retrans.LastHolder)
}

func (x *extension) reset() {
	x.out.reset()
	x.in.reset()
	x.turn = false
}

// receive takes a packet of an extended transport.
func (x *extension) receive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	switch {
	case p.Ext.Profile != x.profile:
		return x.q.foreign(now, p)
	case p.Opcode.IsRequest():
		return x.in.receive(now, p, m)
	case p.Opcode.IsReadAck():
		return x.in.answers.acknowledged(now, p)
	case !x.q.sending():
		return DropState
	case p.Opcode.IsAck():
		return x.out.receiveAck(now, p)
	}
	return x.out.receiveResponse(now, p, m)
}

// poll is QP.poll. Acknowledgements go first, for they clock the peer; requests and
// responses take turns.
func (x *extension) poll(now mono.Time, t *Transmit) bool {
	t.Packet.Ext = bth.XETH{Profile: x.profile}
	if x.in.pollAck(t) || x.out.pollAck(t) {
		return true
	}
	first, second := x.q.req.poll, x.in.answers.poll
	if x.turn {
		first, second = second, first
	}
	if first(now, t) {
		x.turn = !x.turn
		return true
	}
	return second(now, t)
}

// nextTimeout is when onTimeout or poll of what is not the requester's is due.
func (x *extension) nextTimeout() mono.Time {
	t := x.in.answers.nextTimeout()
	if x.q.sending() {
		t = t.Min(x.out.nextTimeout())
	}
	return t
}

func (x *extension) onTimeout(now mono.Time) {
	x.in.answers.onTimeout(now)
	if x.q.sending() {
		x.out.onTimeout(now)
	}
}

// announce tells a tracker what the sender's agent has added to p (Eunomia 3.2.1). It
// returns false if p is of an earlier connection.
func announce(t reorder.Tracker, p *bth.Packet) bool {
	agent, ok := t.(reorder.Agent)
	return !ok || p.Ext.Flags&bth.XHasHead != 0 && agent.Announce(p.Ext.Head, p.Ext.Flags&bth.XTail != 0)
}

// patience is how long there may be no progress before a queue pair of an extended
// transport is given up: as long as RC would take. The recovery's own timeouts are
// shorter by orders of magnitude and do not count retries.
func (q *QP) patience() time.Duration {
	return time.Duration(bth.AckTimeoutNs(q.attr.Timeout)) * time.Duration(q.attr.RetryCnt+1)
}

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
	if p.PSN == q.cfg.Profile.Tracker.Expected() {
		q.refuseForeign = true
		q.resp.countRefusal(badSequence)
		q.resp.parting = true
		q.host.Notify(badSequence.event)
		q.enterError(now)
	}
	return DropProfile
}

// pollForeign fills t with the NAK that foreign has asked for. It names the expected packet:
// a later one would acknowledge the requests before it.
func (q *QP) pollForeign(t *Transmit) bool {
	if !q.refuseForeign || q.state < RTR || q.state == Err && !q.resp.parting {
		return false
	}
	q.refuseForeign = false
	q.header(&t.Packet, bth.TransportRC|bth.OpAcknowledge, q.cfg.Profile.Tracker.Expected())
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeInvalidRequest}
	return true
}

// feedbackOf decodes what an acknowledgement says.
func feedbackOf(p *bth.Packet) bth.Feedback {
	h := &p.Ext
	has := func(f bth.XFlags) bool { return h.Flags&f != 0 }
	f := bth.Feedback{Expected: p.PSN, Gap: p.AETH.Syndrome == bth.SyndromePSNSeqErr, HasSACK: has(bth.XHasSACK), Refused: has(bth.XRefused), ECE: has(bth.XECE), ReTx: has(bth.XReTx)}
	if f.HasSACK {
		f.SACK = h.SACK
	}
	if has(bth.XHasPath) {
		f.VP = h.Path
	}
	if n := h.HoleCount(); n > 0 {
		f.Holes, f.NumHoles = h.Holes, uint8(n)
	}
	return f
}

// maxAcks is how many acknowledgements may wait to be sent.
const maxAcks = 4096

// ackQueue holds the acknowledgements of packets that have arrived. Those that say
// nothing but the expected PSN are merged, unless each of them clocks the sender.
type ackQueue struct {
	ring    []bth.Feedback // its length is a power of two
	head, n int
}

func (a *ackQueue) push(f bth.Feedback, each bool) {
	if a.n > 0 && !each && plain(&f) && plain(a.at(a.n-1)) {
		*a.at(a.n - 1) = f
		return
	}
	if a.n == len(a.ring) {
		a.makeRoom()
	}
	*a.at(a.n) = f
	a.n++
}

// makeRoom doubles the ring or, if that is long enough, forgets the oldest: it counts
// as lost on the way.
func (a *ackQueue) makeRoom() {
	if len(a.ring) == maxAcks {
		a.head, a.n = a.head+1, a.n-1
		return
	}
	bigger := make([]bth.Feedback, max(4, 2*len(a.ring)))
	for i := range a.n {
		bigger[i] = *a.at(i)
	}
	a.ring, a.head = bigger, 0
}

func (a *ackQueue) at(i int) *bth.Feedback { return &a.ring[(a.head+i)&(len(a.ring)-1)] }

func (a *ackQueue) pop() (f bth.Feedback, ok bool) {
	if a.n == 0 {
		return f, false
	}
	f = *a.at(0)
	a.head, a.n = a.head+1, a.n-1
	return f, true
}

func (a *ackQueue) clear() { a.head, a.n = 0, 0 }

// plain reports whether f says nothing but the expected PSN.
func plain(f *bth.Feedback) bool {
	return !f.Gap && !f.HasSACK && !f.Refused && !f.ECE && !f.ReTx && f.NumHoles == 0
}

// answerTo completes what the tracker says of a packet with the packet's own marks,
// which MP-RDMA echoes (3.1).
func answerTo(f bth.Feedback, p *bth.Packet, m RxMeta, each bool) bth.Feedback {
	f.ECE = m.CE
	if p.Ext.Profile == bth.ProfileMELO && f.NumHoles == 0 {
		f.HasSACK = false // only a new hole is worth a NACK of its own (MELO 3.2.4)
	}
	if each {
		f.HasSACK, f.SACK, f.VP = true, p.PSN, m.Path
		f.ReTx = p.Ext.Flags&bth.XReTx != 0
	}
	return f
}

// acknowledge builds an acknowledgement.
func (q *QP) acknowledge(t *Transmit, op bth.Opcode, f *bth.Feedback, expected bth.PSN, a bth.AETH) {
	p := &t.Packet
	q.header(p, op, expected)
	p.BECN = q.takeEcho()
	if p.AETH = a; f.Gap {
		p.AETH.Syndrome = bth.SyndromePSNSeqErr
	}
	h := &p.Ext
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
	h.SetHoles(f.Holes, int(f.NumHoles))
	t.Path = f.VP
}
