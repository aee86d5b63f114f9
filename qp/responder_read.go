package qp

import (
	"roced/bth"
	"roced/reorder"
)

// resource is a READ or atomic that has been accepted. It is kept after it has
// been answered, to answer duplicates (IBTA vol.1 9.7.5.1.3, 9.7.5.1.5).
type resource struct {
	first  bth.PSN
	span   uint32 // PSNs of its responses
	start  uint32 // response with which the present round began
	next   uint32 // next response to send
	due    bool   // there are responses to send
	given  bool   // all of them have been sent once
	atomic bool
	msn    uint32
	va     uint64
	rkey   uint32
	length uint32
	orig   uint64 // atomic: the value found
}

// rdQueue is a ring of the last max_dest_rd_atomic READs and atomics, in PSN
// order. Its storage comes with the first one.
type rdQueue struct {
	ring  []resource
	limit uint32
	count uint32 // resources ever added
	due   int    // resources with responses to send
}

// room reports whether one more may be accepted: not while the oldest still has
// responses to send, for then the peer has too many outstanding.
func (d *rdQueue) room() bool {
	if d.limit == 0 {
		return false
	}
	if d.count < d.limit || len(d.ring) == 0 {
		return true
	}
	res := d.at(d.count)
	return !res.due || res.given
}

func (d *rdQueue) at(i uint32) *resource { return &d.ring[i%d.limit] }

// add makes a place for a resource whose responses are due.
func (d *rdQueue) add(res resource) {
	if len(d.ring) == 0 {
		d.ring = make([]resource, d.limit)
	}
	res.due = true
	if d.at(d.count).due {
		d.due-- // a repetition that the peer does not need any more
	}
	*d.at(d.count) = res
	d.count++
	d.due++
}

// oldest is the oldest resource with responses to send.
func (d *rdQueue) oldest() *resource {
	if d.due == 0 {
		return nil
	}
	for i := d.count - min(d.count, d.limit); i != d.count; i++ {
		if res := d.at(i); res.due {
			return res
		}
	}
	return nil
}

// find returns the resource to which psn belongs.
func (d *rdQueue) find(psn bth.PSN) *resource {
	for i := d.count; i != d.count-min(d.count, d.limit); i-- {
		res := d.at(i - 1)
		if distance(res.first, psn) < res.span {
			return res
		}
	}
	return nil
}

// repeat makes the responses of res from the k-th on due again.
func (d *rdQueue) repeat(res *resource, k uint32) {
	if !res.due {
		res.due = true
		d.due++
	}
	res.start, res.next = k, k
}

func (d *rdQueue) done(res *resource) {
	res.due, res.given = false, true
	d.due--
}

func (d *rdQueue) clear() { *d = rdQueue{limit: d.limit} }

func (r *responder) acceptRead(p *bth.Packet) {
	span := max(1, (p.RETH.Length+uint32(r.q.mtu)-1)/uint32(r.q.mtu))
	r.advance(p, span, reorder.Last)
	r.rd.add(resource{first: p.PSN, span: span, msn: r.msn, va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length})
}

func (r *responder) acceptAtomic(p *bth.Packet) *refusal {
	a := &p.AtomicETH
	var orig uint64
	var ok bool
	if p.Opcode.Op() == bth.OpCmpSwap {
		orig, ok = r.q.host.CompareSwap(a.RKey, a.VA, a.Compare, a.SwapAdd)
	} else {
		orig, ok = r.q.host.FetchAdd(a.RKey, a.VA, a.SwapAdd)
	}
	if !ok {
		return badAccess
	}
	r.advance(p, 1, reorder.Last)
	r.rd.add(resource{first: p.PSN, span: 1, msn: r.msn, atomic: true, orig: orig})
	return nil
}

// duplicate answers a request that has been executed before (IBTA vol.1
// 9.7.5.1.3): SEND and WRITE are acknowledged, READs executed again, from the
// middle if asked so, and atomics answered from the saved result.
func (r *responder) duplicate(p *bth.Packet) Drop {
	switch {
	case p.Opcode.IsReadRequest():
		r.repeatRead(p)
	case p.Opcode.IsAtomic():
		if res := r.rd.find(p.PSN); res != nil && res.atomic {
			res.msn = r.msn
			r.rd.repeat(res, 0)
		}
	case r.nak == 0:
		r.wantAck(r.trk.Expected().Add(-1))
	}
	return DropDuplicate
}

// repeatRead: what is asked for again must lie inside what was granted before.
func (r *responder) repeatRead(p *bth.Packet) {
	res := r.rd.find(p.PSN)
	if res == nil || res.atomic || res.rkey != p.RETH.RKey {
		return
	}
	k := distance(res.first, p.PSN)
	done := k * uint32(r.q.mtu)
	if p.RETH.VA != res.va+uint64(done) || p.RETH.Length != res.length-done {
		return
	}
	res.msn = r.msn
	r.rd.repeat(res, k)
}
