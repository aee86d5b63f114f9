package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
)

// resource is an accepted READ or atomic. It is kept after it has been answered, to answer duplicates (IBTA vol.1
// 9.7.5.1.3, 9.7.5.1.5).
type resource struct {
	first    bth.PSN
	span     uint32 // PSNs of its responses
	start    uint32 // first response of the present round
	next     uint32 // next response to send
	end      uint32 // bytes from va at which the present round ends
	due      bool   // there are responses to send
	answered bool   // a round has been sent to its end
	atomic   bool
	write    bool // ATOMIC WRITE or FLUSH, answered like a READ of length 0
	msn      uint32
	va       uint64
	rkey     uint32
	length   uint32
	orig     uint64 // atomic: the original value
}

// rdQueue holds the last max_dest_rd_atomic READs and atomics, in PSN order.
type rdQueue struct {
	ring.Ring[resource]
	low uint32 // no resource before this one is due
	due int    // resources with responses to send
}

// room reports whether the responder may accept one more READ or atomic. It may not if it keeps limit resources and the
// oldest still has responses to send: then the peer has too many requests outstanding.
func (d *rdQueue) room(limit int) bool {
	for d.Len() > limit {
		d.drop() // SQD permits lowering the limit
	}
	return limit > 0 && (d.Len() < limit || !d.Oldest().due || d.Oldest().answered)
}

// add makes the responses of a resource due; room must have returned true.
func (d *rdQueue) add(res resource, limit int) {
	if d.Len() == limit {
		d.drop()
	}
	res.due = true
	*d.Push() = res
	d.due++
}

// drop removes the oldest. If it is due, the peer does not need the repeated responses any more.
func (d *rdQueue) drop() {
	if d.Oldest().due {
		d.due--
	}
	d.Head++
}

// next returns the oldest resource with responses to send.
func (d *rdQueue) next() *resource {
	if d.due == 0 {
		return nil
	}
	if int32(d.low-d.Head) < 0 {
		d.low = d.Head
	}
	for !d.At(d.low).due {
		d.low++
	}
	return d.At(d.low)
}

// find returns the resource to which psn belongs.
func (d *rdQueue) find(psn bth.PSN) (i uint32, res *resource) {
	for i := d.Tail; i != d.Head; i-- {
		if res := d.At(i - 1); psn.Since(res.first) < res.span {
			return i - 1, res
		}
	}
	return 0, nil
}

// repeat makes the responses of resource i due again, from response k on.
func (d *rdQueue) repeat(i, k uint32) {
	res := d.At(i)
	if !res.due {
		res.due = true
		d.due++
	}
	res.start, res.next = k, k
	if int32(i-d.low) < 0 {
		d.low = i
	}
}

func (d *rdQueue) done(res *resource) {
	res.due, res.answered = false, true
	d.due--
}

// expire removes resources whose duplicates can no longer be recognized: more than half of the PSN space behind the
// expected PSN they would count as ahead of it (IBTA vol.1 9.7.1). They have been answered, because the peer has
// progressed.
func (d *rdQueue) expire(expected bth.PSN) {
	for d.Len() > 0 && expected.Since(d.Oldest().first) > maxSpan {
		d.drop()
	}
}

// room implements admission.
func (a *inOrder) room() bool { return a.rd.room(int(a.r.q.attr.MaxDestRdAtomic)) }

// respond implements admission.
func (a *inOrder) respond(e effect) {
	res := resource{first: e.psn, span: 1, msn: a.r.msn}
	switch {
	case e.opcode.IsReadRequest():
		res.span, res.end = packets(e.length, a.r.q.mtu), e.length
		res.va, res.rkey, res.length = e.va, e.rkey, e.length
	case e.opcode.IsAtomic():
		res.atomic, res.orig = true, e.operand
	default:
		res.write = true
	}
	a.rd.add(res, int(a.r.q.attr.MaxDestRdAtomic))
}

// duplicate answers a request that has been executed before (IBTA vol.1 9.7.5.1.3). It acknowledges SEND and WRITE,
// executes READs again, from the middle if requested, and answers atomics with the saved result.
func (a *inOrder) duplicate(p *bth.Packet) Drop {
	switch {
	case p.Opcode.IsReadRequest():
		a.repeatRead(p)
	case p.Opcode.IsAtomic(), p.Opcode.IsPlacement():
		if i, res := a.rd.find(p.PSN); res != nil && res.atomic == p.Opcode.IsAtomic() && res.write == p.Opcode.IsPlacement() {
			res.msn = a.r.msn
			a.rd.repeat(i, 0)
		}
	default:
		psn := p.PSN
		if oldest := a.trk.Expected().Add(-maxSpan / 2); psn.Before(oldest) { // it may be half of the PSN space behind a later request
			psn = oldest
		}
		a.wantAck(psn)
	}
	return DropDuplicate
}

// repeatRead answers a duplicate READ, which must lie within the READ that was accepted.
func (a *inOrder) repeatRead(p *bth.Packet) {
	i, res := a.rd.find(p.PSN)
	if res == nil || res.atomic || res.write || res.rkey != p.RETH.RKey {
		return
	}
	k := p.PSN.Since(res.first)
	done := k * a.r.q.mtu
	n := p.RETH.Length
	if p.RETH.VA != res.va+uint64(done) || n > res.length-done || n == 0 && res.length != 0 {
		return
	}
	res.msn, res.end = a.r.msn, done+n
	a.rd.repeat(i, k)
}
