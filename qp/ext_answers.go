package qp

import (
	"roced/bth"
	"roced/mono"
	"roced/retrans"
)

// answers sends the responses to READs and atomics of an extended transport. They have
// PSNs of their own, are acknowledged by the requester, and the responder sends them
// again when they are lost (IRN 5.2).
type answers struct {
	q    *QP
	rec  retrans.Recovery
	ring []answer // its length is a power of two
	// head is the oldest that is not acknowledged, cursor the one being sent.
	head, cursor, tail uint32

	from          bth.PSN // the first of the connection
	una, nxt, end bth.PSN // first unacknowledged, first never sent, first not yet due
	since         mono.Time
}

// answer is a READ or atomic that has been executed.
type answer struct {
	first  bth.PSN
	span   uint32
	msn    uint32
	va     uint64
	rkey   uint32
	length uint32
	atomic bool
	orig   uint64 // atomic: the value found
}

// maxAnswers bounds those that are not acknowledged. A requester has no more than
// max_dest_rd_atomic outstanding; as many again may have arrived, and their
// acknowledgements be on the way or lost.
func (a *answers) limit() int { return 4*int(a.q.attr.MaxDestRdAtomic) + 4 }

// room reports whether one more may be accepted beside others that wait.
func (a *answers) room(waiting int) bool {
	return a.q.attr.MaxDestRdAtomic > 0 && int(a.tail-a.head)+waiting < a.limit()
}

func (a *answers) start(psn bth.PSN) {
	a.reset()
	a.from, a.una, a.nxt, a.end = psn, psn, psn, psn
	a.rec.Reset(psn)
}

func (a *answers) reset() { *a = answers{q: a.q, rec: a.rec, ring: a.ring} }

func (a *answers) at(i uint32) *answer { return &a.ring[i&uint32(len(a.ring)-1)] }

// add makes the responses to a request due.
func (a *answers) add(x answer) {
	if int(a.tail-a.head) == len(a.ring) {
		bigger := make([]answer, max(2, 2*len(a.ring)))
		for i := a.head; i != a.tail; i++ {
			bigger[i&uint32(len(bigger)-1)] = *a.at(i)
		}
		a.ring = bigger
	}
	x.first = a.end
	a.end = a.end.Add(int(x.span))
	*a.at(a.tail) = x
	a.tail++
}

// poll fills t with the next response: lost ones first.
func (a *answers) poll(now mono.Time, t *Transmit) bool {
	if a.head == a.tail || a.q.state < RTR || a.q.state > SQE {
		return false
	}
	if psn, ok := a.rec.NextRetransmit(); ok {
		i := a.head
		for i != a.tail && distance(a.at(i).first, psn) >= a.at(i).span {
			i++
		}
		return i != a.tail && a.send(now, t, a.at(i), psn, true)
	}
	if a.nxt == a.end || distance(a.una, a.nxt) >= room(a.rec) || a.rec.InFlight() >= a.q.cfg.MaxUnacked {
		return false
	}
	for distance(a.at(a.cursor).first, a.nxt) >= a.at(a.cursor).span {
		a.cursor++
	}
	return a.send(now, t, a.at(a.cursor), a.nxt, false)
}

// room is how many packets a recovery allows to be outstanding: BDP-FC (IRN 3.2).
func room(rec retrans.Recovery) uint32 {
	if l, ok := rec.(retrans.Capped); ok {
		return l.Cap()
	}
	return maxSpan
}

// send builds response psn of x.
func (a *answers) send(now mono.Time, t *Transmit, x *answer, psn bth.PSN, again bool) bool {
	if a.q.sending() && !x.atomic && !a.q.req.pace.ready(now) {
		return false
	}
	if !a.build(&t.Packet, x, distance(x.first, psn)) {
		a.withhold(t, x, psn)
		if !again {
			a.q.ctr.RespRemoteAccessErrors++
			a.tail = a.head
			a.q.host.Notify(EventQPAccessErr)
			a.q.enterError(now)
			return true
		}
	}
	if again {
		t.Packet.Ext.Flags |= bth.XReTx
		a.q.ctr.RetransmittedPackets++
	} else {
		a.nxt = psn.Next()
	}
	if a.una == psn && !again {
		a.since = now
	}
	a.rec.OnSent(now, psn, 1, again)
	a.q.traceSent(now, &t.Packet, 1, again)
	if a.q.sending() && !x.atomic {
		a.q.req.account(now, &t.Packet)
	}
	return true
}

// build makes response k of x. It fails if the memory may no longer be read.
func (a *answers) build(p *bth.Packet, x *answer, k uint32) bool {
	psn := x.first.Add(int(k))
	p.Ext = bth.XETH{Profile: a.q.cfg.Profile.Kind}
	if p.Ext.Profile == bth.ProfileEunomia {
		p.Ext.Flags, p.Ext.Head = bth.XHasHead, a.from
		if psn.Next() == a.end {
			p.Ext.Flags |= bth.XTail
		}
	}
	if x.atomic {
		a.q.header(p, bth.TransportExt|bth.OpAtomicAck, psn)
		p.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: x.msn}
		p.AtomicAck = x.orig
		return true
	}
	mtu := uint32(a.q.mtu)
	n := min(mtu, x.length-k*mtu)
	var data []byte
	if n > 0 {
		var ok bool
		if data, ok = a.q.host.ReadRemote(x.rkey, x.va+uint64(k)*uint64(mtu), int(n), x.length-k*mtu-n); !ok {
			return false
		}
	}
	a.q.header(p, bth.TransportExt|readResponseOp(k == 0, k+1 == x.span), psn)
	p.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: x.msn}
	p.Payload = data
	return true
}

// withhold makes a response that says that it cannot be given, for the region has gone
// away. Sent in place of a lost one, it breaks only a requester that has not got that:
// the others, which may well have ended the use of the region, acknowledge a duplicate.
func (a *answers) withhold(t *Transmit, x *answer, psn bth.PSN) {
	a.q.header(&t.Packet, bth.TransportExt|bth.OpReadRespOnly, psn)
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeRemoteAccessErr, MSN: x.msn}
}

// acknowledged digests the acknowledgement of responses.
func (a *answers) acknowledged(now mono.Time, p *bth.Packet) Drop {
	if distance(a.una, p.PSN) > distance(a.una, a.nxt) {
		return DropStaleAck
	}
	f := feedbackOf(p)
	a.q.traceAck(now, f, 0, true)
	out := a.rec.OnFeedback(now, f)
	if out.Acked > 0 {
		a.una, a.since = a.rec.Una(), now
		for a.head != a.tail && distance(a.at(a.head).first, a.una) >= a.at(a.head).span {
			a.head++
		}
		if int32(a.cursor-a.head) < 0 {
			a.cursor = a.head
		}
	}
	if out.Lost > 0 {
		a.q.ctr.CompleterRetry++
		a.q.req.ctl.OnLoss(now, out.Lost, false)
	}
	return Accepted
}

// deadline is when responses are given up: the requester is not there any more.
func (a *answers) deadline() mono.Time {
	limit := a.q.patience()
	if limit == 0 || a.una == a.nxt {
		return mono.Never
	}
	return a.since.Add(limit)
}

func (a *answers) nextTimeout() mono.Time {
	if a.q.state < RTR || a.q.state > SQE {
		return mono.Never
	}
	return a.rec.Deadline().Min(a.deadline())
}

func (a *answers) onTimeout(now mono.Time) {
	switch {
	case now >= a.deadline():
		a.rec.Reset(a.end)
		a.head, a.cursor = a.tail, a.tail
		a.una, a.nxt = a.end, a.end
	case now >= a.rec.Deadline():
		a.q.ctr.LocalAckTimeoutErr++
		lost := a.rec.OnTimeout(now).Lost
		a.q.traceTimeout(now, a.una, lost, true)
		a.q.req.ctl.OnLoss(now, lost, true)
	}
}
