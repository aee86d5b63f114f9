package qp

import (
	"encoding/binary"

	"roced/bth"
	"roced/mono"
	"roced/path"
	"roced/reorder"
	"roced/retrans"
)

// extRequester is what the requester of an extended transport does otherwise than that
// of RC: its packets say where they belong, acknowledgements come for each of them, and
// responses have PSNs of their own and are acknowledged too (IRN 5.2, 5.3).
type extRequester struct {
	q         *QP
	trk       reorder.Tracker // of responses
	acks      ackQueue        // of responses
	buffer    orderBuffer     // of responses
	perPacket bool            // an acknowledgement for each packet: they clock the sender

	msn    uint32  // of the next message
	recvSN uint32  // recv_WQE_SN of the next one that consumes a receive
	readSN uint32  // read_WQE_SN of the next READ or atomic
	rnxt   bth.PSN // of the first response to the next READ or atomic
	head   bth.PSN // the first PSN of the connection
	since  mono.Time
	syncAt mono.Time // a synchronise operation waits until then; zero: none does

	holder retrans.LastHolder // nil: the last packets of WRITEs do not wait
}

// start begins at psn; the queue pair has entered RTS.
func (e *extRequester) start(psn bth.PSN) {
	e.reset()
	e.rnxt, e.head = psn, psn
	e.trk.Reset(psn)
}

func (e *extRequester) reset() {
	e.acks.clear()
	e.buffer.clear()
	*e = extRequester{q: e.q, trk: e.trk, holder: e.holder, perPacket: e.perPacket, acks: e.acks, buffer: e.buffer}
}

// fresh implements source.
func (e *extRequester) fresh(now mono.Time, t *Transmit) bool {
	return !e.waits(now) && e.q.req.sendNew(now, t)
}

// again implements source.
func (e *extRequester) again(now mono.Time, psn bth.PSN, t *Transmit) bool {
	return e.q.req.retransmit(now, psn, t)
}

// exhausted implements source.
func (e *extRequester) exhausted() bool { return e.q.req.cursor == e.q.req.tail }

// waits reports whether the next request is a synchronise operation (here: one with a
// fence) whose time has not come.
func (e *extRequester) waits(now mono.Time) bool {
	e.syncAt = 0
	s := e.q.req.current()
	if s == nil || s.sent > 0 || !e.synchronises(s) {
		return false
	}
	r := &e.q.req
	if at := r.paths.(path.Syncer).SyncAt(r.window()); now < at {
		e.syncAt = at
		return true
	}
	return false
}

func (e *extRequester) synchronises(s *slot) bool {
	_, ok := e.q.req.paths.(path.Syncer)
	return ok && s.wqe.Flags&SendFence != 0 && s.kind != kindLocal
}

// mayEnd reports whether the next packet of s may leave. The last one of a WRITE waits
// for all before it, if the recovery wants that (Eunomia 3.5.2).
func (e *extRequester) mayEnd(s *slot) bool {
	return e.holder == nil || s.kind != kindData || workOps[s.wqe.Opcode].completion != WCWrite || s.sent+1 != s.span ||
		e.holder.MayEnd(e.q.req.nxt)
}

// number gives s its sequence numbers when its first packet is sent (IRN 5.3.2).
func (e *extRequester) number(now mono.Time, s *slot) {
	if e.q.req.idle() {
		e.since = now
	}
	s.msn, e.msn = e.msn, (e.msn+1)&psnMask
	s.rfirst = e.rnxt
	switch {
	case s.kind.responds():
		s.sn, e.readSN = e.readSN, (e.readSN+1)&psnMask
		e.rnxt = e.rnxt.Add(int(s.rspan))
	case s.wqe.Opcode != WRWrite:
		s.sn, e.recvSN = e.recvSN, (e.recvSN+1)&psnMask
	}
}

// stamp sets the headers of packet k of s that RC does not have.
func (e *extRequester) stamp(s *slot, k uint32, p *bth.Packet) {
	h := &p.Ext
	*h = bth.XETH{Profile: e.q.cfg.Profile.Kind}
	if e.synchronises(s) {
		h.Flags = bth.XSync
	}
	if h.Profile == bth.ProfileEunomia {
		h.Flags, h.Head = h.Flags|bth.XHasHead, e.head
		if r := &e.q.req; k+1 == s.span && s == r.slot(r.tail-1) && !e.q.host.HasSend() {
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
		done := k * uint32(e.q.mtu)
		p.RETH = bth.RETH{VA: w.RemoteVA + uint64(done), RKey: w.RKey, Length: w.Length - done}
		if !p.Opcode.HasImm() {
			return
		}
	}
	h.Flags |= bth.XHasRecvSN
	h.RecvSN = s.sn
}

// pending is the number of responses that have been asked for and are not there.
func (e *extRequester) pending() uint32 { return distance(e.trk.Expected(), e.rnxt) }

// answered reports whether all responses to s, the oldest request, have arrived.
func (e *extRequester) answered(s *slot) bool {
	return distance(s.rfirst, e.trk.Expected()) >= s.rspan
}

// receiveAck digests an acknowledgement of requests.
func (e *extRequester) receiveAck(now mono.Time, p *bth.Packet) Drop {
	r, s := &e.q.req, p.AETH.Syndrome
	switch {
	case (s.IsACK() || s == bth.SyndromePSNSeqErr) && !r.stale(p):
		e.acknowledged(now, p)
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

// acknowledged tells the recovery, the congestion control and the paths of an
// acknowledgement, in this order.
func (e *extRequester) acknowledged(now mono.Time, p *bth.Packet) {
	r, f := &e.q.req, feedbackOf(p)
	if r.feedback(now, f, p); r.q.sending() {
		r.clock(now, f, r.bytesInFlight())
	}
}

// receiveResponse places a READ response or the value of an atomic, in any order.
func (e *extRequester) receiveResponse(now mono.Time, p *bth.Packet, m RxMeta) Drop {
	if !announce(e.trk, p) {
		return DropStaleAck
	}
	verdict := e.trk.Classify(p.PSN)
	switch verdict {
	case reorder.Duplicate:
		e.acks.push(answerTo(bth.Feedback{Expected: e.trk.Expected()}, p, m, e.perPacket), e.perPacket)
		return DropDuplicate
	case reorder.Beyond:
		e.trk.Receive(p.PSN, false)
		e.acks.push(answerTo(e.trk.Feedback(), p, m, e.perPacket), e.perPacket)
		return DropOutOfOrder
	}
	s, k := e.locate(p.PSN)
	if s == nil {
		return DropStaleAck // nobody has asked for it
	}
	if p.Opcode.HasAETH() && !p.AETH.Syndrome.IsACK() {
		return e.broken(now, s, StatusRemAccessErr, DropAccess)
	}
	waits := e.buffer.trk != nil && verdict == reorder.Held
	if !waits {
		if d := e.place(s, k, p); d != Accepted {
			return e.misplaced(now, s, d)
		}
	}
	before := e.trk.Expected()
	v, _ := e.trk.Receive(p.PSN, false)
	e.acks.push(answerTo(e.trk.Feedback(), p, m, e.perPacket), e.perPacket)
	if waits && v == reorder.Held {
		e.buffer.store(p)
	}
	if s, d := e.passOn(before); d != Accepted {
		return e.misplaced(now, s, d)
	}
	n := e.trk.Expected().Diff(before)
	switch {
	case n == 0:
		e.q.ctr.OutOfSequence++
		return Accepted
	case n > 1 || p.Opcode.Ends(): // otherwise no message is complete
		if !e.q.host.Sync() {
			return e.broken(now, s, StatusLocProtErr, DropAccess)
		}
		e.q.req.settle(now)
	}
	e.since = now
	return Accepted
}

// misplaced ends the queue pair over a response to s that cannot be placed.
func (e *extRequester) misplaced(now mono.Time, s *slot, d Drop) Drop {
	if d == DropAccess {
		return e.broken(now, s, StatusLocProtErr, d)
	}
	return e.broken(now, s, StatusBadRespErr, d)
}

// locate returns the request that asks for the response psn, and which one it is.
func (e *extRequester) locate(psn bth.PSN) (*slot, uint32) {
	r := &e.q.req
	if r.begun() == 0 {
		return nil, 0
	}
	first := r.slot(r.head).rfirst
	i := r.search(func(s *slot) bool { return distance(first, s.rfirst) <= distance(first, psn) })
	if i == r.head-1 {
		return nil, 0
	}
	s := r.slot(i)
	if k := distance(s.rfirst, psn); s.kind.responds() && k < s.rspan {
		return s, k
	}
	return nil, 0
}

// place puts response k to s where it belongs.
func (e *extRequester) place(s *slot, k uint32, p *bth.Packet) Drop {
	w := &s.wqe
	if s.kind == kindAtomic {
		if !p.Opcode.IsAtomicAck() {
			return DropOpcode
		}
		value := &e.q.req.atomic
		binary.NativeEndian.PutUint64(value[:], p.AtomicAck)
		return placed(e.q.req.scatter(w, 0, value[:]))
	}
	off := k * uint32(e.q.mtu)
	if !p.Opcode.IsReadResponse() || p.Opcode.Ends() != (k+1 == s.rspan) {
		return DropOpcode
	}
	if len(p.Payload) != int(min(w.Length-off, uint32(e.q.mtu))) {
		return DropLength
	}
	return placed(e.q.req.scatter(w, off, p.Payload))
}

func placed(ok bool) Drop {
	if ok {
		return Accepted
	}
	return DropAccess
}

// refused ends the queue pair over the request to which psn belongs.
func (e *extRequester) refused(now mono.Time, psn bth.PSN, status Status) {
	if i, _, ok := e.q.req.locate(psn); ok {
		e.broken(now, e.q.req.slot(i), status, Accepted)
		return
	}
	e.q.req.fail(now, status)
}

// broken ends the queue pair over the answer to s. What stands before s in the queue is
// flushed with the rest: it is not done.
func (e *extRequester) broken(now mono.Time, s *slot, status Status, d Drop) Drop {
	r := &e.q.req
	s.status = status
	for r.head != r.tail && r.slot(r.head) != s {
		r.q.host.SendRetired(1)
		r.complete(&r.slot(r.head).wqe, StatusWRFlushErr)
		r.head++
	}
	r.fail(now, status)
	return d
}

// pollAck fills t with the next acknowledgement of a response.
func (e *extRequester) pollAck(t *Transmit) bool {
	f, ok := e.acks.pop()
	if !ok || !e.q.sending() {
		return false
	}
	e.q.acknowledge(t, bth.OpcodeExtReadAck, &f, e.trk.Expected(), bth.AETH{Syndrome: bth.SyndromeACK})
	return true
}

// nextTimeout is when a synchronise operation may be sent or the peer is given up. While
// nothing is outstanding, nobody is waited for.
func (e *extRequester) nextTimeout() mono.Time {
	t := e.givenUp()
	if e.syncAt != 0 {
		t = t.Min(e.syncAt)
	}
	return t
}

func (e *extRequester) givenUp() mono.Time {
	limit := e.q.patience()
	if limit == 0 || e.q.req.idle() || e.q.req.rnrUntil != 0 {
		return mono.Never
	}
	return e.since.Add(limit)
}

func (e *extRequester) onTimeout(now mono.Time) {
	if e.syncAt != 0 && now >= e.syncAt {
		e.syncAt = 0 // poll looks again
	}
	if now >= e.givenUp() {
		e.q.ctr.RetryExceededErr++
		e.q.req.fail(now, StatusRetryExcErr)
	}
}
