package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// extendedFraming is the framing of the extended transports: packets say where they belong,
// acknowledgements come for each of them, and responses have PSNs of their own and are
// acknowledged too (IRN 5.2, 5.3).
type extendedFraming struct {
	q          *QP
	trk        reorder.Tracker // of responses
	acks       ackQueue        // of responses
	waiting    waiting         // responses, if buffersAll
	buffersAll bool            // responses go to memory in order (MELO 3.2.2)
	unsynced   bool            // responses have been placed since the last Sync

	msn    uint32  // of the next message
	recvSN uint32  // recv_WQE_SN of the next one that consumes a receive
	readSN uint32  // read_WQE_SN of the next READ or atomic
	head   bth.PSN // the first PSN of the connection
}

func (x *extendedFraming) init(q *QP, p *Profile) {
	x.q, x.trk = q, p.ResponseTracker
	_, x.buffersAll = p.ResponseTracker.(reorder.Buffered)
}

// start begins at psn; the queue pair has entered RTS.
func (x *extendedFraming) start(psn bth.PSN) {
	x.reset()
	x.q.req.rdone, x.head = psn, psn
	x.trk.Reset(psn)
}

func (x *extendedFraming) reset() {
	x.acks.Clear()
	x.waiting.clear()
	*x = extendedFraming{q: x.q, trk: x.trk, acks: x.acks, waiting: x.waiting, buffersAll: x.buffersAll}
}

// number gives s the numbers of its message, and of its receive or READ (IRN 5.3.2).
func (x *extendedFraming) number(s *slot) {
	s.msn, x.msn = x.msn, (x.msn+1)&psnMask
	switch {
	case s.kind.responds():
		s.sn, x.readSN = x.readSN, (x.readSN+1)&psnMask
	case s.wqe.Opcode != WRWrite:
		s.sn, x.recvSN = x.recvSN, (x.recvSN+1)&psnMask
	}
}

// spans implements framing: a request with responses takes one PSN.
func (x *extendedFraming) spans(n uint32, responds bool) (span, rspan uint32) {
	if responds {
		return 1, n
	}
	return n, 0
}

// More of framing: each packet asks for its acknowledgement, which waits for no response, and
// lost ones are sent again until the peer is given up.
func (x *extendedFraming) open(s *slot) bool             { return x.q.req.hasRoom() && x.mayEnd(s) }
func (*extendedFraming) asks(mono.Time, bool, bool) bool { return true }
func (*extendedFraming) probe(mono.Time, *Transmit) bool { return false }
func (*extendedFraming) awaits() bool                    { return false }
func (*extendedFraming) missed(mono.Time)                {}

// stamp implements framing.
func (x *extendedFraming) stamp(s *slot, k uint32, again bool, p *bth.Packet) {
	if s.sent == 0 {
		x.number(s)
	}
	h := &p.Ext
	h.Profile, h.Flags = x.q.cfg.kind, 0
	if again {
		h.Flags = bth.XReTx
	}
	if x.q.req.synchronises(s) {
		h.Flags |= bth.XSync
	}
	if x.q.x.Head {
		h.Flags, h.Head = h.Flags|bth.XHasHead, x.head
		if k+1 == s.span && x.q.req.lastSoFar(s) {
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

// receive implements framing.
func (x *extendedFraming) receive(now mono.Time, p *bth.Packet, m arrival) Drop {
	if !p.Opcode.IsAck() {
		return x.receiveResponse(now, p, m)
	}
	r, s := &x.q.req, p.AETH.Syndrome
	switch {
	case (s.IsACK() || s == bth.SyndromePSNSeqErr) && !r.stale(p):
		f := &r.q.scratch.said
		decode(p, f)
		if r.feedback(now, f, p); r.q.sending() {
			r.clock(now, f, r.bytesInFlight())
		}
	case distance(r.una, p.PSN) >= r.outstanding():
		return DropStaleAck
	case s.IsRNR():
		return r.onRNR(now, p)
	case s.IsNAK():
		return r.onNAK(now, p)
	default:
		return DropOpcode
	}
	return Accepted
}

// receiveResponse places a READ response or the value of an atomic, in any order.
func (x *extendedFraming) receiveResponse(now mono.Time, p *bth.Packet, m arrival) Drop {
	if !announce(x.trk, p) {
		return DropStaleAck
	}
	verdict := x.trk.Classify(p.PSN)
	switch verdict {
	case reorder.Duplicate:
		f := x.acks.push()
		f.Expected = x.trk.Expected()
		x.q.due(&x.acks, f, p, m)
		return DropDuplicate
	case reorder.Beyond:
		x.trk.Commit(p.PSN, verdict)
		x.q.report(&x.acks, x.trk, p, m)
		return DropOutOfOrder
	}
	s, k := x.locate(p.PSN)
	if s == nil {
		return DropStaleAck // nobody has asked for it
	}
	if p.Opcode.HasAETH() && !p.AETH.Syndrome.IsACK() {
		return x.q.req.broken(now, s, StatusRemAccessErr, DropAccess)
	}
	copied := x.buffersAll && verdict == reorder.Held
	if !copied {
		if d := x.q.req.placeResponse(s, k, s.rspan, p); d != Accepted {
			return x.q.req.misplaced(now, s, d)
		}
	}
	x.trk.Commit(p.PSN, verdict)
	x.q.report(&x.acks, x.trk, p, m)
	if copied {
		w := x.waiting.insert(p.PSN)
		*w = waiter{effect: effect{psn: p.PSN, opcode: p.Opcode, operand: p.AtomicAck}, data: x.q.retain(p.Payload, w.data[:0])}
	}
	x.unsynced = true
	if verdict != reorder.InOrder {
		x.q.ctr.OutOfSequence++
		return Accepted
	}
	return x.release(now, p.Opcode.Ends())
}

// release completes what the responses complete that are there now; ends says that the
// expected one ends its request.
func (x *extendedFraming) release(now mono.Time, ends bool) Drop {
	expected := x.trk.Expected()
	for w := x.waiting.Oldest(); w != nil && w.psn.Before(expected); w = x.waiting.Oldest() {
		if s, k := x.locate(w.psn); s != nil {
			p := bth.Packet{Opcode: w.opcode, Payload: w.data, AtomicAck: w.operand, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
			if d := x.q.req.placeResponse(s, k, s.rspan, &p); d != Accepted {
				return x.q.req.misplaced(now, s, d)
			}
		}
		x.waiting.pop()
	}
	r := &x.q.req
	n := expected.Diff(r.rdone)
	if n == 0 {
		return Accepted
	}
	if n > 1 || ends { // otherwise no request is complete
		if s, _ := x.locate(r.rdone); x.unsynced && !x.q.host.Sync() {
			if x.q.host.Later() {
				x.q.blocked = true
				return Accepted
			}
			return r.misplaced(now, s, DropAccess)
		}
		x.unsynced, r.rdone = false, expected
		r.retire(now)
	}
	r.rdone = expected
	r.answered(now)
	return Accepted
}

// locate returns the request that asks for the response psn, and which one it is.
func (x *extendedFraming) locate(psn bth.PSN) (*slot, uint32) {
	r := &x.q.req
	i, ok := r.search(psn, func(s *slot) bth.PSN { return s.rfirst })
	if !ok {
		return nil, 0
	}
	s := r.At(i)
	if k := distance(s.rfirst, psn); s.kind.responds() && k < s.rspan {
		return s, k
	}
	return nil, 0
}

// pollAck fills t with the next acknowledgement of a response.
func (x *extendedFraming) pollAck(t *Transmit) bool {
	if x.acks.Len() == 0 || !x.q.sending() {
		return false
	}
	x.q.acknowledge(t, bth.OpcodeExtReadAck, x.acks.pop(), x.q.req.rdone, bth.AETH{Syndrome: bth.SyndromeACK})
	return true
}

// synchronises reports whether s is a synchronise operation (MP-RDMA 3.4): here, one with a
// fence.
func (r *requester) synchronises(s *slot) bool {
	return r.can != nil && r.can.syncer != nil && s.wqe.Flags&SendFence != 0 && s.kind != kindLocal
}

// waits reports whether the next request is a synchronise operation whose time has not come.
func (r *requester) waits(now mono.Time) bool {
	if r.can == nil || r.can.syncer == nil {
		return false
	}
	r.can.syncAt = 0
	if s := r.current(); s != nil && s.sent == 0 && r.synchronises(s) {
		if at := r.can.syncer.SyncAt(r.window()); now < at {
			r.can.syncAt = at
		}
	}
	return r.can.syncAt != 0
}

// mayEnd reports whether the next packet of s may leave: see HoldLast.
func (x *extendedFraming) mayEnd(s *slot) bool {
	r, hold := &x.q.req, x.q.x.HoldLast
	switch {
	case hold <= HoldAtReceiver, s.wqe.Opcode != WRWrite, s.sent+1 != s.span:
		return true
	case hold == HoldAtSenderIdle && !r.lastSoFar(s):
		return true
	}
	return r.outstanding() == 0
}

// lastSoFar reports whether nothing is queued behind s.
func (r *requester) lastSoFar(s *slot) bool {
	return s == r.At(r.Tail-1) && !r.q.host.HasSend()
}

// answerDue implements framing (see ackTimeout): while nothing is outstanding, nobody is waited for.
func (x *extendedFraming) answerDue() mono.Time {
	r, limit := &x.q.req, x.q.ackTimeout()
	if limit == 0 || r.idle() || r.rnrUntil != 0 {
		return mono.Never
	}
	return r.since.Add(limit)
}
