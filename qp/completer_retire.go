package qp

import (
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/plugin/mono"
)

// retire completes finished requests, then the request that cannot be executed if it is the oldest, and checks whether
// SQD has drained.
func (r *requester) retire(now mono.Time) {
	r.retireDone(now)
	if r.hasBad && r.bad == r.Head {
		r.fail(now, r.At(r.Head).status)
		return
	}
	r.checkDrained()
}

// retireDone completes the finished requests at the head of the ring, in order (IBTA vol.1 10.8.3.2). It retires them
// before it writes their completion: otherwise a client that posts on a completion may find the queue full.
func (r *requester) retireDone(now mono.Time) {
	n := 0
	for r.Head != r.cursor && r.done(r.At(r.Head)) {
		s := r.At(r.Head)
		if s.kind.responds() {
			r.rdOut--
		}
		r.q.ctr.RDMASends++
		r.q.countRequest(s)
		if d := r.q.ctr.Distributions; d != nil && s.span > 0 && r.rec != nil {
			d.message(s.wqe.Opcode, now.Sub(s.begun))
		}
		n++
		if r.q.cfg.SigAll || s.wqe.Flags&SendSignaled != 0 {
			r.q.host.SendRetired(n)
			r.complete(&s.wqe, StatusSuccess)
			n = 0
		}
		r.Head++
	}
	if n > 0 {
		r.q.host.SendRetired(n)
	}
}

// done reports whether the request at the head, which has been sent, is finished.
func (r *requester) done(s *slot) bool {
	switch {
	case s.kind == kindLocal:
		return true
	case r.rec == nil:
		return int32(r.flushedUntil-r.Head) > 0
	case s.rspan > 0 && r.rdone.Since(s.rfirst) < s.rspan:
		return false
	}
	return r.una.Since(s.first) >= s.span
}

// complete puts a completion into the send CQ. The caller checks whether a successful one is signaled; errors always
// are (10.8.5).
func (r *requester) complete(w *SendWQE, status Status) {
	c := CQE{WRID: w.WRID, Status: status, QPN: uint32(r.q.cfg.QPN)}
	if int(w.Opcode) < len(workOps) {
		c.Opcode = workOps[w.Opcode].completion
		if status == StatusSuccess && workOps[w.Opcode].kind.responds() {
			c.ByteLen = w.Length
		}
	}
	switch status {
	case StatusSuccess:
	case StatusWRFlushErr:
		r.q.ctr.ReqCQEFlushError++
	default:
		r.q.ctr.SendErr++
		r.q.ctr.ReqCQEError++
	}
	r.q.host.CompleteSend(c)
}

// fail completes the oldest request in error, which breaks the send queue.
func (r *requester) fail(now mono.Time, status Status) {
	if r.Head != r.Tail {
		r.end(status)
	}
	r.q.enterSendError(now)
}

// end completes the oldest request with status.
func (r *requester) end(status Status) {
	r.q.host.SendRetired(1)
	r.complete(&r.Oldest().wqe, status)
	r.Head++
}

// flush completes all requests taken with "flushed"; flushPosted follows (IBTA vol.1 10.8.4). It drops the ring too,
// because packets that were polled and have not left may still reference its inline data.
func (r *requester) flush() {
	for r.Head != r.Tail {
		r.end(StatusWRFlushErr)
	}
	r.Ring = ring.Ring[slot]{}
	r.clearState()
	r.una = r.nxt
}

// flushPosted completes at most n requests posted to a broken send queue, and reports whether there may be more.
func (r *requester) flushPosted(n int) (more bool) {
	for range n {
		if !r.q.host.HasSend() {
			return false
		}
		w := &r.Push().wqe
		if r.Tail--; !r.q.host.NextSend(w) {
			return false
		}
		r.q.host.SendRetired(1)
		r.complete(w, StatusWRFlushErr)
	}
	return true
}
