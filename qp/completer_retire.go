package qp

import (
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/plugin/mono"
)

// retire completes what is done, then the request that cannot be executed if
// its turn has come, and looks whether SQD has drained.
func (r *requester) retire(now mono.Time) {
	r.retireDone(now)
	if r.hasBad && r.bad == r.Head {
		r.fail(now, r.At(r.Head).status)
		return
	}
	r.checkDrained()
}

// retireDone completes the requests at the head of the ring that are done, in order
// (IBTA vol.1 10.8.3.2). Their places are given back before the completion which
// tells of it: a poster that counts on that finds the queue full otherwise.
func (r *requester) retireDone(now mono.Time) {
	n := 0
	for r.Head != r.cursor && r.done(r.At(r.Head)) {
		s := r.At(r.Head)
		if s.kind.responds() {
			r.rdOut--
		}
		r.q.ctr.RDMASends++
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

// done reports whether the request at the head, which has been sent, is done.
func (r *requester) done(s *slot) bool {
	switch {
	case s.kind == kindLocal:
		return true
	case r.rec == nil:
		return int32(r.departed-r.Head) > 0
	case s.rspan > 0 && distance(s.rfirst, r.rdone) < s.rspan:
		return false
	}
	return distance(s.first, r.una) >= s.span
}

// complete puts a completion into the send CQ. Errors always do (10.8.5).
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

// end completes the oldest request, whatever has become of it.
func (r *requester) end(status Status) {
	r.q.host.SendRetired(1)
	r.complete(&r.Oldest().wqe, status)
	r.Head++
}

// flush completes everything taken with "flushed", which is followed by what is posted (IBTA
// vol.1 10.8.4). The ring goes too: packets polled but not yet gone may still
// look into its inline data.
func (r *requester) flush() {
	for r.Head != r.Tail {
		r.end(StatusWRFlushErr)
	}
	r.Ring = ring.Ring[slot]{}
	r.forget()
	r.una = r.nxt
}

// flushPosted completes at most n of those that have been posted to a broken send queue,
// and reports whether there may be more.
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
