package qp

import (
	"roced/bth"
	"roced/mono"
)

// poll fills t with the next answer.
func (r *responder) poll(now mono.Time, t *Transmit) bool {
	if r.q.state < RTR || r.q.state == Err && !r.parting {
		return false
	}
	for res := r.rd.oldest(); res != nil; res = r.rd.oldest() {
		if r.held(now, res) {
			return false
		}
		if r.answer(t, res) {
			t.Packet.BECN = r.q.takeEcho()
			r.account(now, t, res)
			return true
		}
		if res.given {
			// A duplicate that was late, most likely: the peer has its data and has
			// told so by other means, whereupon the key was taken away.
			r.rd.done(res)
			continue
		}
		r.rd.clear()
		r.refuseRead(now, res)
	}
	switch {
	case r.nak != 0:
		r.acknowledge(t, r.nak, r.nakPSN)
		return true
	case r.ack:
		r.acknowledge(t, bth.SyndromeACK, r.ackable())
		return true
	}
	return false
}

// answer builds the next response to res. It fails if the memory may no longer be
// read.
func (r *responder) answer(t *Transmit, res *resource) bool {
	if res.atomic {
		r.atomicAck(t, res)
	} else if !r.readResponse(t, res) {
		return false
	}
	if r.ack && r.ackPSN.Before(res.first) {
		r.ack, r.urgent = false, false // the response acknowledges all before it
		r.q.ctr.AckDeferred++
	}
	return true
}

// ackable is the PSN of the acknowledgement that waits: everything, or what comes
// before a READ or atomic behind ackPSN. That has been answered, but the answer may
// have been lost, or may come late: the peer would take an acknowledgement of it, or
// of what follows, for an implied NAK (IBTA vol.1 9.7.5.1.2), and Linux's rxe takes
// one with its very PSN for the answer, and completes it without data.
func (r *responder) ackable() bth.PSN {
	psn := r.trk.Expected().Add(-1)
	for i := r.rd.count; i != r.rd.begin() && r.rd.at(i-1).first.After(r.ackPSN); i-- {
		psn = r.rd.at(i - 1).first.Add(-1)
	}
	return psn
}

// onlyAck reports whether an acknowledgement is all that there is to send.
func (r *responder) onlyAck() bool { return r.ack && r.nak == 0 && r.rd.due == 0 }

// acknowledge builds an ACK or NAK. Either acknowledges all before it.
func (r *responder) acknowledge(t *Transmit, s bth.Syndrome, psn bth.PSN) {
	r.ack, r.urgent, r.nak = false, false, 0
	r.q.header(&t.Packet, bth.TransportRC|bth.OpAcknowledge, psn)
	t.Packet.BECN = r.q.takeEcho()
	t.Packet.AETH = bth.AETH{Syndrome: s, MSN: r.msn}
}

// held reports whether the next response has to wait: READ responses are data and
// share the rate of the queue pair. A window does not hold them, for nobody
// acknowledges them.
func (r *responder) held(now mono.Time, res *resource) bool {
	return r.q.sending() && !res.atomic && !r.q.req.pace.ready(now)
}

// account charges a response to pacing and congestion control.
func (r *responder) account(now mono.Time, t *Transmit, res *resource) {
	if r.q.sending() && !res.atomic {
		r.q.req.account(now, &t.Packet)
	}
}

func (r *responder) atomicAck(t *Transmit, res *resource) {
	r.rd.done(res)
	r.q.header(&t.Packet, bth.TransportRC|bth.OpAtomicAck, res.first)
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: res.msn}
	t.Packet.AtomicAck = res.orig
}

// readResponse builds the next response packet of a READ. It fails if the memory
// may no longer be read.
func (r *responder) readResponse(t *Transmit, res *resource) bool {
	k, mtu := res.next, uint32(r.q.mtu)
	n := min(mtu, res.end-k*mtu)
	var data []byte
	if n > 0 {
		var ok bool
		if data, ok = r.q.host.ReadRemote(res.rkey, res.va+uint64(k)*uint64(mtu), int(n), res.end-k*mtu-n); !ok {
			return false
		}
	}
	first, last := k == res.start, k*mtu+n == res.end
	r.q.header(&t.Packet, bth.TransportRC|readResponseOp(first, last), res.first.Add(int(k)))
	t.Packet.AETH = bth.AETH{Syndrome: bth.SyndromeACK, MSN: res.msn}
	t.Packet.Payload = data
	if res.next++; last {
		r.rd.done(res)
	}
	return true
}

// readResponseOp is the operation of a response that is the first, the last, both or none.
func readResponseOp(first, last bool) bth.Opcode {
	switch {
	case first && last:
		return bth.OpReadRespOnly
	case first:
		return bth.OpReadRespFirst
	case last:
		return bth.OpReadRespLast
	}
	return bth.OpReadRespMiddle
}

// refuseRead breaks the queue pair over a region that went away while it was
// being read. The NAK names the response that cannot be given.
func (r *responder) refuseRead(now mono.Time, res *resource) {
	r.q.ctr.RespRemoteAccessErrors++
	psn := res.first.Add(int(res.next))
	if r.q.state != Err {
		r.fail(now, badAccess)
	}
	r.nak, r.nakPSN, r.parting = badAccess.nak, psn, true
}
