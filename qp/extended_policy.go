package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// extendedPolicy is the senderPolicy of the extended transports. Each packet says where its payload belongs and is
// acknowledged. Responses have PSNs of their own and are acknowledged too (IRN 5.2, 5.3).
type extendedPolicy struct {
	q          *QP
	trk        reorder.Tracker // of responses
	acks       ackQueue        // of responses
	held       oooQueue        // responses, if buffersAll
	buffersAll bool            // responses are placed in PSN order (MELO 3.2.2)

	msn    uint32  // of the next message
	recvSN uint32  // recv_WQE_SN of the next message that consumes a receive
	readSN uint32  // read_WQE_SN of the next READ or atomic
	head   bth.PSN // the first PSN of the connection
}

func (x *extendedPolicy) init(q *QP, p *Profile) {
	x.q, x.trk = q, p.ResponseTracker
	_, x.buffersAll = p.ResponseTracker.(reorder.Buffered)
}

// start implements senderPolicy.
func (x *extendedPolicy) start(psn bth.PSN) {
	x.acks.Clear()
	x.held.clear()
	*x = extendedPolicy{q: x.q, trk: x.trk, acks: x.acks, held: x.held, buffersAll: x.buffersAll, head: psn}
	x.q.req.rdone = psn
	x.trk.Reset(psn)
}

// configure implements senderPolicy.
func (x *extendedPolicy) configure() { x.q.x.responses.rec.SetTimeout(x.q.ackTimeout()) }

// resume implements senderPolicy: it completes requests whose responses are in memory now.
func (x *extendedPolicy) resume(now mono.Time) {
	if x.q.sending() {
		x.release(now, true)
	}
}

// number gives s the numbers of its message and of its receive or READ (IRN 5.3.2).
func (x *extendedPolicy) number(s *slot) {
	s.msn, x.msn = x.msn, (x.msn+1)&mask24
	switch {
	case s.kind.responds():
		s.sn, x.readSN = x.readSN, (x.readSN+1)&mask24
	case s.wqe.Opcode != WRWrite:
		s.sn, x.recvSN = x.recvSN, (x.recvSN+1)&mask24
	}
}

// spans implements senderPolicy: a request with responses takes one PSN.
func (x *extendedPolicy) spans(n uint32, responds bool) (span, rspan uint32) {
	if responds {
		return 1, n
	}
	return n, 0
}

// requestsAck implements senderPolicy.
func (*extendedPolicy) requestsAck(mono.Time, bool, bool) bool { return true }

// onAckReq implements senderPolicy.
func (*extendedPolicy) onAckReq(mono.Time) {}

// pollProbe implements senderPolicy.
func (*extendedPolicy) pollProbe(mono.Time, *Transmit) bool { return false }

// acksFollowResponses implements senderPolicy.
func (*extendedPolicy) acksFollowResponses() bool { return false }

// onProgress implements senderPolicy.
func (*extendedPolicy) onProgress(time.Duration) {}

// onLoss implements senderPolicy. Retries count ACK timeouts without progress, not losses.
func (*extendedPolicy) onLoss(mono.Time) {}

// deadline implements senderPolicy: it returns when an ACK timeout has passed without progress (see ackTimeout).
func (x *extendedPolicy) deadline() mono.Time {
	r, limit := &x.q.req, x.q.ackTimeout()
	if limit == 0 || r.idle() || r.rnrUntil != 0 {
		return mono.Never
	}
	return r.since.Add(limit)
}

// onDeadline implements senderPolicy.
func (x *extendedPolicy) onDeadline(now mono.Time) {
	x.q.req.since = now
	x.q.req.useRetry(now)
}

// mayLeave implements senderPolicy: see HoldLast.
func (x *extendedPolicy) mayLeave(s *slot) bool {
	r, hold := &x.q.req, x.q.x.HoldLast
	switch {
	case !r.hasRoom():
		return false
	case hold <= HoldAtReceiver, s.wqe.Opcode != WRWrite, s.sent+1 != s.span:
		return true
	case hold == HoldAtSenderIdle && !r.lastQueued(s):
		return true
	}
	return r.outstanding() == 0
}

// stamp implements senderPolicy.
func (x *extendedPolicy) stamp(now mono.Time, s *slot, k uint32, retransmit bool, p *bth.Packet) {
	if s.sent == 0 {
		x.number(s)
	}
	h := &p.Ext
	h.Profile, h.Flags = x.q.cfg.kind, 0
	if retransmit {
		h.Flags = bth.XReTx
	}
	if x.q.x.fields.Fields != nil {
		x.q.putData(now, p, x.q.req.rec)
	}
	if x.q.req.synchronises(s) {
		h.Flags |= bth.XSync
	}
	if x.q.x.Head {
		h.Flags, h.Head = h.Flags|bth.XHasHead, x.head
		if k+1 == s.span && x.q.req.lastQueued(s) {
			h.Flags |= bth.XTail
		}
	}
	if s.kind.responds() {
		h.Flags, h.ReadSN = h.Flags|bth.XHasReadSN, s.sn
		return
	}
	h.Flags, h.MSN, h.Offset = h.Flags|bth.XHasMsg, s.msn, k
	w := &s.wqe
	if p.Opcode.IsWrite() {
		done := k * x.q.mtu
		p.RETH = bth.RETH{VA: w.RemoteVA + uint64(done), RKey: w.RKey, Length: w.Length - done}
		if !p.Opcode.HasImm() {
			return
		}
	}
	h.Flags |= bth.XHasRecvSN
	h.RecvSN = s.sn
}

// receive implements senderPolicy.
func (x *extendedPolicy) receive(now mono.Time, p *bth.Packet, m arrival) Drop {
	if !p.Opcode.IsAck() {
		return x.receiveResponse(now, p, m)
	}
	r, s := &x.q.req, p.AETH.Syndrome
	switch {
	case numbered(s) && !r.stale(p):
		f := &r.q.scratch.feedback
		if !r.q.decode(p, f) {
			return DropFields
		}
		if r.feedback(now, f, p, 0); r.q.sending() {
			r.reportAck(now, f, r.bytesInFlight())
		}
		return Accepted
	case p.PSN.Since(r.una) >= r.outstanding():
		return DropStaleAck
	}
	return r.onNAK(now, p)
}

// receiveResponse places a READ response or the value of an atomic, in any order.
func (x *extendedPolicy) receiveResponse(now mono.Time, p *bth.Packet, m arrival) Drop {
	if d := x.q.announce(x.trk, p); d != Accepted {
		return d
	}
	verdict := x.trk.Classify(p.PSN)
	switch verdict {
	case reorder.Duplicate:
		f := x.acks.push()
		f.Expected = x.trk.Expected()
		x.q.completeAck(&x.acks, f, p, m)
		return DropDuplicate
	case reorder.Beyond:
		x.trk.Commit(p.PSN, verdict)
		x.q.queueAck(&x.acks, x.trk, p, m)
		return DropOutOfOrder
	}
	r := &x.q.req
	s, k := x.locate(p.PSN)
	if s == nil {
		return DropStaleAck // no request asks for it
	}
	if p.Opcode.HasAETH() && !p.AETH.Syndrome.IsACK() {
		return r.failRequest(now, s, StatusRemAccessErr, DropAccess)
	}
	copied := x.buffersAll && verdict == reorder.Held
	if copied && !x.q.fetch(p) {
		return Later
	}
	if !copied {
		if d := r.placeResponse(s, k, s.rspan, p); d == Later {
			return d
		} else if d != Accepted {
			return r.badResponse(now, s, d)
		}
	}
	x.trk.Commit(p.PSN, verdict)
	x.q.queueAck(&x.acks, x.trk, p, m)
	if copied {
		e := x.held.insert(p.PSN)
		*e = oooEntry{effect: effect{psn: p.PSN, opcode: p.Opcode, operand: p.AtomicAck}, data: x.q.retain(p.Payload, e.data[:0])}
	}
	r.memory.wrote()
	if verdict != reorder.InOrder {
		x.q.ctr.OutOfSequence++
		return Accepted
	}
	return x.release(now, p.Opcode.Ends())
}

// release completes the requests whose responses have all arrived. ends says that the expected response ends its
// request.
func (x *extendedPolicy) release(now mono.Time, ends bool) Drop {
	r, expected := &x.q.req, x.trk.Expected()
	for e := x.held.Oldest(); e != nil && e.psn.Before(expected); e = x.held.Oldest() {
		if s, k := x.locate(e.psn); s != nil {
			p := bth.Packet{Opcode: e.opcode, Payload: e.data, AtomicAck: e.operand, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
			if d := r.placeResponse(s, k, s.rspan, &p); d != Accepted {
				return r.badResponse(now, s, d)
			}
		}
		x.held.pop()
	}
	n := expected.Diff(r.rdone)
	if n == 0 {
		return Accepted
	}
	if n > 1 || ends { // otherwise no request is complete
		s, _ := x.locate(r.rdone)
		if ok, later := r.memory.sync(x.q.host); later {
			x.q.memory = memoryBlocked
			return Accepted
		} else if !ok {
			return r.badResponse(now, s, DropAccess)
		}
		r.rdone = expected
		r.retire(now)
	}
	r.rdone = expected
	r.restartRetries(now)
	return Accepted
}

// locate returns the request to which the response psn belongs, and the index of the response.
func (x *extendedPolicy) locate(psn bth.PSN) (*slot, uint32) {
	r := &x.q.req
	i, ok := r.search(psn, func(s *slot) bth.PSN { return s.rfirst })
	if !ok {
		return nil, 0
	}
	s := r.At(i)
	if k := psn.Since(s.rfirst); s.kind.responds() && k < s.rspan {
		return s, k
	}
	return nil, 0
}

// pollAck fills t with the next acknowledgement of a response.
func (x *extendedPolicy) pollAck(t *Transmit) bool {
	if x.acks.Len() == 0 || !x.q.sending() {
		return false
	}
	x.q.acknowledge(t, bth.OpcodeExtReadAck, x.acks.pop(), x.q.req.rdone, bth.AETH{Syndrome: bth.SyndromeACK})
	return true
}

// synchronises reports whether s is a synchronise operation (MP-RDMA 3.4): a request with a fence.
func (r *requester) synchronises(s *slot) bool {
	return r.caps != nil && r.caps.syncer != nil && s.wqe.Flags&SendFence != 0 && s.kind != kindLocal
}

// waits reports whether the next request is a synchronise operation that may not leave yet.
func (r *requester) waits(now mono.Time) bool {
	if r.caps == nil || r.caps.syncer == nil {
		return false
	}
	r.caps.syncAt = 0
	if s := r.current(); s != nil && s.sent == 0 && r.synchronises(s) {
		if at := r.caps.syncer.SyncAt(r.window()); now < at {
			r.caps.syncAt = at
		}
	}
	return r.caps.syncAt != 0
}

// lastQueued reports whether no request is queued behind s.
func (r *requester) lastQueued(s *slot) bool {
	return s == r.At(r.Tail-1) && !r.q.host.HasSend()
}
