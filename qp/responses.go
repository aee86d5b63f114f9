package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
)

// responseSender sends the responses to READs and atomics of an extended transport. Responses have PSNs of their own,
// the requester acknowledges them, and the responder retransmits lost ones (IRN 5.2). Under MP-RDMA they have paths
// and a window of their own, which READ-ACKs clock.
type responseSender struct {
	sender
	ring.Ring[response]        // not acknowledged
	cursor              uint32 // the one being sent

	from    bth.PSN   // the first of the connection
	end     bth.PSN   // the first not yet due
	since   mono.Time // of the last progress or of the last timeout
	retries uint8     // timeouts without progress
}

// response is an executed READ or atomic.
type response struct {
	first  bth.PSN
	span   uint32
	msn    uint32
	va     uint64
	rkey   uint32
	length uint32
	atomic bool
	orig   uint64 // atomic: the original value
}

func (a *responseSender) init(q *QP, p *Profile) {
	a.sender = newSender(q, p.ResponseRecovery, p.ResponseControl, p.ResponsePaths)
	a.perPacket, a.responses = a.ctl != nil, true
	if a.ctl == nil {
		a.ctl = p.Controller
	}
	if a.paths == nil {
		a.paths = &path.Single{}
	}
}

// limit bounds the responses that are not acknowledged. A requester has at most max_dest_rd_atomic requests
// outstanding. Acknowledgements of more responses may be in the network or lost.
func (a *responseSender) limit() int { return 4*int(a.q.attr.MaxDestRdAtomic) + 4 }

// room reports whether the responder may accept one more READ or atomic beside the waiting requests.
func (a *responseSender) room(waiting int) bool {
	return a.q.attr.MaxDestRdAtomic > 0 && a.Len()+waiting < a.limit()
}

func (a *responseSender) start(psn bth.PSN) {
	a.reset()
	a.from, a.end = psn, psn
	a.sender.start(psn)
}

func (a *responseSender) reset() {
	a.Clear()
	*a = responseSender{sender: a.sender, Ring: a.Ring}
	a.clear(bth.PSN{})
}

// add makes the responses to a request due.
func (a *responseSender) add(x response) {
	x.first = a.end
	a.end = a.end.Add(int(x.span))
	*a.Push() = x
}

// active reports whether responses may be sent.
func (a *responseSender) active() bool { return a.q.receiving() }

// idle reports whether all responses have been acknowledged and the paths need no call.
func (a *responseSender) idle() bool { return a.una == a.end && !a.clocked }

// poll fills t with the next response; lost ones go first.
func (a *responseSender) poll(now mono.Time, t *Transmit) bool {
	return a.active() && !a.idle() && a.next(now, t, a)
}

// retransmit implements source.
func (a *responseSender) retransmit(now mono.Time, psn bth.PSN, t *Transmit) bool {
	i := a.Head
	for i != a.Tail && psn.Since(a.At(i).first) >= a.At(i).span {
		i++
	}
	return i != a.Tail && (a.overdue || a.windowOpen()) && a.send(now, t, a.At(i), psn, true)
}

// fresh implements source.
func (a *responseSender) fresh(now mono.Time, t *Transmit) bool {
	if a.exhausted() || !a.hasRoom() || a.rec.InFlight() >= a.q.cfg.MaxUnacked || !a.windowOpen() {
		return false
	}
	for a.nxt.Since(a.At(a.cursor).first) >= a.At(a.cursor).span {
		a.cursor++
	}
	return a.send(now, t, a.At(a.cursor), a.nxt, false)
}

// exhausted implements source.
func (a *responseSender) exhausted() bool { return a.nxt == a.end }

// windowOpen reports whether the congestion window of responses, if they have one, has room for one more. One may
// always be in flight.
func (a *responseSender) windowOpen() bool {
	w := a.window()
	return !a.perPacket || w.InFlight == 0 || w.Room() > 0
}

// send builds response psn of x.
func (a *responseSender) send(now mono.Time, t *Transmit, x *response, psn bth.PSN, retransmit bool) bool {
	if a.q.sending() && !x.atomic && !a.q.req.pace.Ready(now) {
		return false
	}
	if !a.build(&t.Packet, x, psn.Since(x.first)) {
		if a.q.Blocked() {
			return false
		}
		a.accessError(t, x, psn)
		if !retransmit {
			a.q.ctr.RespRemoteAccessErrors++
			a.Tail = a.Head
			a.q.host.Notify(EventQPAccessErr)
			a.q.enterError(now)
			return true
		}
	}
	t.Snapshot = retransmit || x.span == 1
	if retransmit {
		a.overdue = false
		t.Packet.Ext.Flags |= bth.XReTx
		a.q.ctr.RetransmittedPackets++
	} else {
		if a.una == psn {
			a.since, a.retries = now, 0
		}
		a.nxt = psn.Next()
		a.timer.onSent(now, psn)
	}
	if a.q.x.fields.Fields != nil {
		a.q.putData(now, &t.Packet, a.rec)
	}
	a.rec.OnSent(now, psn, 1, retransmit)
	a.q.traceSent(now, &t.Packet, 1, retransmit)
	switch {
	case a.perPacket:
		a.charge(now, &t.Packet, a.q.mtu, a.inFlight())
	case a.q.sending() && !x.atomic:
		a.q.req.account(now, &t.Packet)
	}
	return true
}

// inFlight returns the bytes in flight for congestion control: a window of responses counts packets.
func (a *responseSender) inFlight() uint32 { return a.rec.InFlight() * a.q.mtu }

// build makes response k of x. It fails if the memory may no longer be read.
func (a *responseSender) build(p *bth.Packet, x *response, k uint32) bool {
	psn := x.first.Add(int(k))
	p.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: x.msn}
	p.Ext.Profile, p.Ext.Flags = a.q.cfg.kind, 0
	if a.q.x.Head {
		p.Ext.Flags, p.Ext.Head = bth.XHasHead, a.from
		if psn.Next() == a.end {
			p.Ext.Flags |= bth.XTail
		}
	}
	if x.atomic {
		a.q.header(p, bth.OpAtomicAck, psn)
		p.AtomicAck = x.orig
		return true
	}
	data, ok := a.q.readRemote(x.rkey, x.va, k*a.q.mtu, x.length)
	if !ok {
		return false
	}
	a.q.header(p, readResponseOp(k == 0, k+1 == x.span), psn)
	p.Payload = data
	return true
}

// accessError builds a response that reports the removal of the region. In place of a lost response it breaks only a
// requester that still waits for it. A requester that has the response, and may have invalidated the region,
// acknowledges a duplicate.
func (a *responseSender) accessError(t *Transmit, x *response, psn bth.PSN) {
	a.q.header(&t.Packet, bth.OpReadRespOnly, psn)
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeRemoteAccessErr, MSN: x.msn}
}

// acknowledged takes an acknowledgement of responses.
func (a *responseSender) acknowledged(now mono.Time, p *bth.Packet) Drop {
	if a.stale(p) {
		return DropStaleAck
	}
	f := &a.q.scratch.feedback
	if !a.q.decode(p, f) {
		return DropFields
	}
	out := a.feedback(now, f, 0)
	if out.Acked > 0 {
		a.since, a.retries = now, 0
		for a.Head != a.Tail && a.una.Since(a.At(a.Head).first) >= a.At(a.Head).span {
			a.Head++
		}
		if int32(a.cursor-a.Head) < 0 {
			a.cursor = a.Head
		}
	}
	if out.Lost > 0 {
		a.lost(now, out.Lost, false)
	}
	a.reportAck(now, f, a.inFlight())
	return Accepted
}

// retryDue returns when an ACK timeout has passed without progress.
func (a *responseSender) retryDue() mono.Time {
	limit := a.q.ackTimeout()
	if limit == 0 || a.una == a.nxt {
		return mono.Never
	}
	return a.since.Add(limit)
}

func (a *responseSender) nextTimeout() mono.Time {
	if !a.active() || a.idle() {
		return mono.Never
	}
	return a.rec.Deadline().Min(a.deadline()).Min(a.retryDue())
}

func (a *responseSender) onTimeout(now mono.Time) {
	if !a.active() {
		return
	}
	a.onDeadline(now)
	if a.q.lossDue(now, a.retryDue()) {
		if a.retries == a.q.attr.RetryCnt { // the requester is gone
			a.clear(a.end)
			a.Head, a.cursor = a.Tail, a.Tail
			return
		}
		a.since, a.retries = now, a.retries+1
	}
	if a.q.lossDue(now, a.rec.Deadline()) {
		a.lost(now, a.timedOut(now), true)
	}
}
