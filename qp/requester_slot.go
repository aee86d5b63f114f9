package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// kind classifies requests by their packets.
type kind uint8

const (
	kindData   kind = iota // SEND or WRITE: packets that carry the payload
	kindRead               // one packet; the PSNs are those of the responses
	kindAtomic             // one packet, one response
	kindLocal              // no packet
)

// responds reports whether a response completes the request.
func (k kind) responds() bool { return k == kindRead || k == kindAtomic }

// oneAnswer reports whether a retransmission of s triggers at most one packet of the peer.
func (s *slot) oneAnswer() bool { return s.kind == kindData || s.span == 1 }

// end returns the PSN behind those of s, which has been sent.
func (s *slot) end() bth.PSN { return s.first.Add(int(s.span)) }

// slot is a request in the requester's ring.
type slot struct {
	wqe SendWQE
	progress
}

// course is the progress of a request.
type progress struct {
	stream uint64    // payload sent before it
	begun  mono.Time // when its first packet was sent
	first  bth.PSN   // valid if sent > 0
	span   uint32    // PSNs it takes, 0 for local operations
	sent   uint32    // PSNs sent at least once
	kind   kind
	status Status // not StatusSuccess: the request cannot be executed
	split  bool   // READ: retransmitted from its middle

	// Extended transports only.
	msn    uint32
	sn     uint32  // recv_WQE_SN or read_WQE_SN
	rfirst bth.PSN // of the responses
	rspan  uint32  // number of responses
}

// pull takes the next request from the host and validates it.
func (r *requester) pull() bool {
	if r.hasBad || r.q.state != RTS || !r.q.host.HasSend() || r.Len() >= max(int(r.q.cfg.MaxSendWR), 1) {
		return false
	}
	s := r.Push()
	s.progress = progress{}
	if !r.q.host.NextSend(&s.wqe) {
		r.Tail--
		return false
	}
	if status := r.q.prepare(s); status != StatusSuccess {
		r.markBad(r.Tail-1, status)
	}
	return true
}

// markBad marks request i as one that cannot be executed.
func (r *requester) markBad(i uint32, status Status) {
	r.At(i).status = status
	if !r.hasBad || i-r.Head < r.bad-r.Head {
		r.bad, r.hasBad = i, true
	}
}

// follows reports whether another packet will follow the request just sent without waiting for the peer. It looks ahead
// in the queue.
func (r *requester) follows() bool {
	if r.cursor == r.Tail && !r.pull() || r.q.state != RTS {
		return false
	}
	s := r.At(r.cursor)
	return s.status == StatusSuccess && s.kind != kindLocal && r.mayBegin(s)
}

// locate returns the request to which a sent PSN belongs, and the index of its packet.
func (r *requester) locate(psn bth.PSN) (i, k uint32, ok bool) {
	if i := r.lastResent; i-r.Head < r.Tail-r.Head {
		if k, ok := r.At(i).place(psn); ok {
			return i, k, true
		}
	}
	if i, ok = r.search(psn, func(s *slot) bth.PSN { return s.first }); ok {
		k, ok = r.At(i).place(psn)
	}
	return i, k, ok
}

// search returns the last begun request whose PSN, as returned by of, is not after psn.
func (r *requester) search(psn bth.PSN, of func(*slot) bth.PSN) (i uint32, ok bool) {
	low, n := r.Head, r.begun()
	if n == 0 {
		return 0, false
	}
	first := of(r.At(low))
	for n > 0 {
		half := n / 2
		if of(r.At(low+half)).Since(first) <= psn.Since(first) {
			low, n = low+half+1, n-half-1
		} else {
			n = half
		}
	}
	return low - 1, low != r.Head
}

// begun returns the number of requests whose first packet has been sent, and of executed local operations.
func (r *requester) begun() uint32 {
	n := r.cursor - r.Head
	if r.cursor != r.Tail && r.At(r.cursor).sent > 0 {
		n++
	}
	return n
}

// place reports whether s has sent psn, and the index of its packet.
func (s *slot) place(psn bth.PSN) (k uint32, ok bool) {
	k = psn.Since(s.first)
	return k, k < s.sent
}

// prepare validates a request and computes its PSNs. Its fields cannot be trusted; the host checks addresses again on
// every access.
func (q *QP) prepare(s *slot) Status {
	w := &s.wqe
	if int(w.Opcode) >= len(workOps) || workOps[w.Opcode].services>>q.cfg.Type&1 == 0 || q.mrc() != nil && workOps[w.Opcode].completion != WCWrite {
		return StatusLocQPOpErr
	}
	if q.cfg.Type == UD && w.AH == 0 { // ibv_wr_set_ud_addr() is missing
		return StatusLocQPOpErr
	}
	s.kind = workOps[w.Opcode].kind
	if s.kind == kindLocal {
		return StatusSuccess
	}
	if w.Opcode == WRAtomicWrite {
		if w.Flags&SendInline == 0 || w.Length != atomicWriteLen || len(w.Inline) != atomicWriteLen {
			return StatusLocLenErr
		}
		w.Length = 0 // of its response
	} else if w.Opcode == WRFlush {
		if !validFlush(w.Flush.FETH, w.Flush.Length) || w.Length != 0 {
			return StatusLocQPOpErr
		}
	} else if w.Flags&SendInline != 0 {
		if s.kind != kindData || len(w.Inline) > int(q.cfg.MaxInline) {
			return StatusLocQPOpErr
		}
		if int64(len(w.Inline)) != int64(w.Length) {
			return StatusLocLenErr
		}
	} else if status := q.checkSGEs(w, s.kind); status != StatusSuccess {
		return status
	}
	return q.measure(s)
}

// checkSGEs checks the scatter/gather list of a request.
func (q *QP) checkSGEs(w *SendWQE, k kind) Status {
	if len(w.SGEs) > int(q.cfg.MaxSendSGE) {
		return StatusLocQPOpErr
	}
	var sum uint64
	var need Access
	if k.responds() {
		need = AccessLocalWrite
	}
	ok := true
	for i := range w.SGEs {
		g := &w.SGEs[i]
		sum += uint64(g.Length)
		ok = ok && (g.Length == 0 || q.host.CheckLocal(g.LKey, g.Addr, g.Length, need))
	}
	switch {
	case sum != uint64(w.Length) || sum > MaxMessage:
		return StatusLocLenErr
	case !ok:
		return StatusLocProtErr
	}
	return StatusSuccess
}

// measure checks the length of s and sets its span.
func (q *QP) measure(s *slot) Status {
	n := s.wqe.Length
	s.span, s.rspan = q.req.policy.spans(packets(n, q.mtu), s.kind.responds())
	switch {
	case s.kind.responds() && q.attr.MaxRdAtomic == 0:
		return StatusLocQPOpErr // it could never be sent
	case s.kind == kindAtomic && n != 8, q.cfg.Type == UD && s.span > 1:
		return StatusLocLenErr
	}
	return StatusSuccess
}
