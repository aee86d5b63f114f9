package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/retrans"
)

// mask24 wraps message sequence numbers and the sequence numbers of extension headers.
const mask24 = 1<<24 - 1

// maxSpan limits the outstanding PSNs to half of the PSN space, so that the responder can tell new packets from
// duplicates (IBTA vol.1 9.7.1).
const maxSpan = 1 << 23

// localBudget limits the local operations of one poll.
const localBudget = 256

// requester sends the work requests of the send queue. Its ring holds the requests that have been taken from the host
// and not completed:
//
//	Head .. cursor   sent, waiting for the peer
//	cursor           being sent
//	cursor .. Tail   taken to look ahead
//
// It grows on demand, so that thousands of idle queue pairs cost little.
type requester struct {
	sender
	ring.Ring[slot]
	policy senderPolicy

	cursor       uint32
	ackedUntil   uint32 // the first request that is not acknowledged to its end
	flushedUntil uint32 // UC, UD: requests before it have left the port
	lastResent   uint32 // the request retransmitted last

	// bad is the first request that cannot be executed, if hasBad: the requester sends no packet from there on, and
	// completes it in error when it is the oldest.
	bad           uint32
	hasBad        bool
	hasMore       bool // poll must be called again without an input
	draining      bool // SQD: an event is due once the queue has drained
	memory        memoryState
	rdOut         int32     // READs and atomics outstanding
	rnxt          bth.PSN   // extended transports: the first response to the next READ or atomic
	rnrUntil      mono.Time // waiting after an RNR NAK until then, if not zero
	moreAt        mono.Time // when hasMore or flushing was set
	payloadSent   uint64    // bytes of payload sent, without retransmissions
	payloadAcked  uint64
	payloadSACKed uint64 // beyond payloadAcked, by selective acknowledgements
	acks          ackPolicy
	tail          tailProbe
	rdone         bth.PSN // extended transports: all responses before this PSN are in memory
	pace          sched.Pacer
	since         mono.Time // last progress, last AckReq (RC) or last retry (extended transports)
}

func (r *requester) init(q *QP, p *Profile) {
	r.sender = newSender(q, p.Recovery, p.Controller, p.Paths)
	if q.x != nil {
		r.policy = q.x.policy
		if !r.onePath {
			r.caps.router, _ = r.policy.(router)
		}
		return
	}
	r.policy, r.rec = standardPolicy{r}, nil
	if q.cfg.Type == RC {
		rec, ok := p.Recovery.(*retrans.GoBackN)
		if !ok { // standard packets support no other recovery
			rec = retrans.NewGoBackN()
		}
		r.rec = rec
	}
}

// start begins sending at psn; the queue pair has entered RTS.
func (r *requester) start(psn bth.PSN) {
	r.clearState()
	r.rnxt, r.rdone = psn, psn
	r.sender.start(psn)
	r.configure()
	r.policy.start(psn)
}

// configure applies attributes that may have changed.
func (r *requester) configure() {
	r.retries, r.rnrRetries = r.q.attr.RetryCnt, r.q.attr.RNRRetry
	if r.rec != nil {
		r.rec.SetTimeout(r.q.ackTimeout())
	}
	r.policy.configure()
}

// clearState clears all state but the plug-ins.
func (r *requester) clearState() {
	r.Clear()
	*r = requester{sender: r.sender, policy: r.policy, Ring: r.Ring}
	r.retries, r.rnrRetries = 0, 0
}

// reset clears all state, without completions (IBTA vol.1 10.3.1.1). It retires the requests taken; the host resets
// its rings.
func (r *requester) reset() {
	if n := r.Len(); n > 0 {
		r.q.host.SendRetired(n)
	}
	r.Ring = ring.Ring[slot]{}
	r.clearState()
	r.clear(bth.PSN{})
}

// idle reports whether no request is being executed. Requests taken to look ahead have not begun.
func (r *requester) idle() bool { return r.begun() == 0 }

// drain is called when the queue pair has entered SQD: it finishes the requests that have begun, then an event is due
// (IBTA vol.1 10.3.1.5).
func (r *requester) drain() {
	r.draining = r.q.attr.EnSQDNotify
	r.checkDrained()
}

func (r *requester) checkDrained() {
	if r.draining && r.q.state == SQD && r.idle() {
		r.draining = false
		r.q.host.Notify(EventSQDrained)
	}
}

// poll fills t with the next request packet.
func (r *requester) poll(now mono.Time, t *Transmit) bool {
	r.hasMore = false
	if !r.q.sending() || now < r.rnrUntil || r.hasNoWork() {
		return false
	}
	r.rnrUntil = 0
	if r.rec == nil {
		return r.sendNew(now, t)
	}
	return r.sender.next(now, t, r) || r.policy.pollProbe(now, t)
}

// hasNoWork reports whether there is no request and the paths need no call.
func (r *requester) hasNoWork() bool { return r.Head == r.Tail && !r.clocked && !r.q.host.HasSend() }

// fresh implements source.
func (r *requester) fresh(now mono.Time, t *Transmit) bool { return !r.waits(now) && r.sendNew(now, t) }

// exhausted implements source.
func (r *requester) exhausted() bool { return r.cursor == r.Tail }

// sendNew sends the next packet of the request at the cursor.
func (r *requester) sendNew(now mono.Time, t *Transmit) bool {
	for range localBudget {
		s := r.current()
		if s == nil || s.status != StatusSuccess {
			r.retire(now)
			return false
		}
		if s.kind == kindLocal {
			if !r.runLocal(now, s) {
				return false
			}
			continue
		}
		if s.sent == 0 && !r.mayBegin(s) || !r.windowOpen(s) {
			return false
		}
		return r.pace.Ready(now) && r.q.mayLeave(now) && r.transmit(now, s, t)
	}
	r.hasMore, r.moreAt = true, now
	return false
}

// current returns the request at the cursor. If there is none, it takes one from the host.
func (r *requester) current() *slot {
	if r.cursor == r.Tail && !r.pull() {
		return nil
	}
	s := r.At(r.cursor)
	if r.q.state == SQD && s.sent == 0 {
		return nil // SQD begins no request
	}
	return s
}

// mayBegin reports whether the order of the queue allows s to begin. A fence waits for all READs and atomics before it
// (IBTA vol.1 10.8.3.3), and at most max_rd_atomic of them may be outstanding (9.4.4, 9.4.5).
func (r *requester) mayBegin(s *slot) bool {
	if s.wqe.Flags&SendFence != 0 && r.rdOut > 0 {
		return false
	}
	if !s.kind.responds() {
		return true
	}
	return r.rdOut < int32(r.q.attr.MaxRdAtomic) && (r.rdOut == 0 || r.rnxt.Since(r.rdone)+s.rspan <= maxSpan)
}

// runLocal executes a local operation in queue order. A fence applies to it too. LOCAL_INV waits for all earlier
// requests, because any of them may need the key for a retransmission.
func (r *requester) runLocal(now mono.Time, s *slot) bool {
	if s.wqe.Flags&SendFence != 0 && r.rdOut > 0 || s.wqe.Opcode == WRLocalInv && r.Head != r.cursor {
		return false
	}
	switch {
	case s.wqe.Opcode == WRLocalInv && !r.q.host.Invalidate(s.wqe.Imm),
		s.wqe.Opcode == WRBindMW && !r.q.host.BindMW(s.wqe.Bind):
		r.markBad(r.cursor, StatusMWBindErr) // "memory management operation error"
	default:
		s.first, s.rfirst = r.nxt, r.rnxt // for search
		r.cursor++
	}
	r.retire(now)
	return r.q.sending() && !r.hasBad
}

// transmit sends the next packet of s, which is the one at the cursor.
func (r *requester) transmit(now mono.Time, s *slot, t *Transmit) bool {
	k := s.sent
	if k == 0 {
		s.first, s.rfirst, s.stream, s.begun = r.nxt, r.rnxt, r.payloadSent, now
	}
	if !r.fill(s, k, t) {
		r.unreadable(now, r.cursor)
		return false
	}
	if k == 0 {
		if r.idle() {
			r.since = now
		}
		r.rnxt = r.rnxt.Add(int(s.rspan))
	}
	r.policy.stamp(now, s, k, false, &t.Packet)
	psn, span, n := r.nxt, uint32(1), len(t.Packet.Payload)
	if s.kind.responds() {
		span = s.span
		r.rdOut++
	}
	s.sent += span
	r.nxt = psn.Add(int(span))
	r.payloadSent += uint64(n)
	ends := s.sent == s.span
	if ends {
		r.cursor++
	}
	r.q.traceSent(now, &t.Packet, span, false)
	responds := s.kind.responds() // s moves if looking ahead makes the ring grow
	if r.rec == nil {
		r.account(now, &t.Packet)
		return true
	}
	r.rec.OnSent(now, psn, span, false)
	r.account(now, &t.Packet)
	last := r.q.endsTurn(span)
	t.Packet.AckReq = responds || r.policy.requestsAck(now, ends, false) || last
	r.recordAckReq(now, r.nxt.Add(-1), t.Packet.AckReq)
	// Time only packets that an acknowledgement alone answers, and not packets behind outstanding responses. The
	// peer's congestion control delays responses: two peers would slow each other down without end.
	if t.Packet.AckReq && !responds && !r.policy.acksFollowResponses() {
		r.timer.onSent(now, r.nxt.Add(-1))
	}
	return true
}

// account charges a packet to pacing and congestion control.
func (r *requester) account(now mono.Time, p *bth.Packet) {
	if r.control == noControl && r.q.attr.RateLimit == 0 {
		r.pace.Unlimited()
		return
	}
	var inflight uint32
	if r.control != noControl {
		inflight = r.bytesInFlight()
	}
	bytes := uint32(len(p.Payload))
	if r.clocked {
		bytes = r.q.mtu
	}
	r.charge(now, p, bytes, inflight)
}

// wireLen returns the bytes of a packet on the link: Ethernet (14), IPv4 (20), UDP (8) and ICRC (4) around the
// transport packet, and the overhead of the link. It treats IPv6 like IPv4.
func (q *QP) wireLen(p *bth.Packet) int {
	if h := q.cfg.DataHeader; h > 0 && len(p.Payload) > 0 {
		return int(h) + len(p.Payload)
	}
	const encapsulation = 14 + 20 + 8 + 4
	return encapsulation + p.HeaderLen() + len(p.Payload) + q.cfg.Tuning.linkBytes()
}

// bytesInFlight estimates the payload in the network. During a retransmission, the count of PSNs is the tighter
// bound. If acknowledgements clock packets out, the window counts packets of any size.
func (r *requester) bytesInFlight() uint32 {
	if r.rec == nil {
		return 0
	}
	bytes := min(uint64(r.rec.InFlight())*uint64(r.q.mtu), 1<<32-1)
	if !r.clocked {
		bytes = min(bytes, r.payloadSent-r.payloadAcked)
	}
	return uint32(bytes)
}

// windowOpen reports whether the PSN window and the congestion window have room for a packet of s. One packet may
// always be outstanding.
func (r *requester) windowOpen(s *slot) bool {
	if r.rec == nil {
		return true // UC and UD are not acknowledged
	}
	n := r.outstanding()
	switch {
	case !r.policy.mayLeave(s):
		return false
	case n == 0:
		return true
	case r.full(n):
		return false
	case r.control == noControl || r.rec.InFlight() == 0:
		return true
	}
	window, _ := r.limits()
	return uint64(r.bytesInFlight()) < window
}

// full reports whether the PSN window is full with n packets outstanding. Packets known to have arrived or to be lost
// do not count.
func (r *requester) full(n uint32) bool {
	return (n >= r.q.cfg.MaxUnacked || r.q.peering != nil) && r.atLimit(n)
}

func (r *requester) atLimit(n uint32) bool {
	limit := r.q.maxUnacked()
	return n >= limit && r.rec.InFlight() >= limit
}

// nextTimeout returns when onTimeout or poll must be called.
func (r *requester) nextTimeout() mono.Time {
	t := r.deadline().Min(r.pace.Deadline()).Min(r.policy.deadline()).Min(r.q.turnDeadline())
	if r.caps != nil && r.caps.syncAt != 0 {
		t = t.Min(r.caps.syncAt)
	}
	switch {
	case r.hasMore && !r.q.Blocked():
		return r.moreAt
	case r.rnrUntil != 0:
		t = t.Min(r.rnrUntil)
	case r.rec != nil:
		t = t.Min(r.rec.Deadline())
	}
	return t
}

// onTimeout handles all deadlines that have passed.
func (r *requester) onTimeout(now mono.Time) {
	r.onDeadline(now)
	if r.caps != nil && now >= r.caps.syncAt {
		r.caps.syncAt = 0 // poll looks again
	}
	switch {
	case r.rnrUntil != 0:
		if now >= r.rnrUntil {
			r.rnrUntil = 0
		}
	case r.rec != nil && r.q.lossDue(now, r.rec.Deadline()):
		r.onLoss(now, r.timedOut(now), true)
	}
	if r.q.sending() && r.q.lossDue(now, r.policy.deadline()) {
		r.policy.onDeadline(now)
	}
}

// unreadable handles request i, whose memory could not be read.
func (r *requester) unreadable(now mono.Time, i uint32) {
	if !r.q.Blocked() {
		r.markBad(i, StatusLocProtErr)
		r.retire(now)
		r.hasMore, r.moreAt = true, now // the requests before it may need a probe
	}
}

// flushed completes UC and UD requests whose packets have all left. A local operation may then run, or the queue has
// room for more requests.
func (r *requester) flushed(now mono.Time) {
	before := r.Head
	r.flushedUntil = r.cursor
	r.retire(now)
	if r.Head != before && r.q.sending() {
		r.hasMore = r.cursor != r.Tail && r.At(r.cursor).kind == kindLocal || r.q.host.HasSend()
		r.moreAt = now
	}
}
