package qp

import "roced/bth"

// resource is a READ or atomic that has been accepted. It is kept after it has
// been answered, to answer duplicates (IBTA vol.1 9.7.5.1.3, 9.7.5.1.5).
type resource struct {
	first  bth.PSN
	span   uint32 // PSNs of its responses
	start  uint32 // response with which the present round began
	next   uint32 // next response to send
	end    uint32 // bytes from va at which the present round ends
	due    bool   // there are responses to send
	given  bool   // a round has been sent to its end
	atomic bool
	write  bool // ATOMIC WRITE, answered like a READ of nothing
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
	limit uint64
	count uint64 // resources ever added
	low   uint64 // none before this one is due
	floor uint64 // those before this one have expired
	due   int    // resources with responses to send
}

// room reports whether one more may be accepted: not while the oldest still has
// responses to send, for then the peer has too many outstanding.
func (d *rdQueue) room(limit uint64) bool {
	if d.limit != limit {
		d.resize(limit)
	}
	if d.limit == 0 {
		return false
	}
	if d.count-d.begin() < d.limit {
		return true
	}
	res := d.at(d.count)
	return !res.due || res.given
}

func (d *rdQueue) at(i uint64) *resource { return &d.ring[i%d.limit] }

// begin is the oldest resource that is kept.
func (d *rdQueue) begin() uint64 { return max(d.count-min(d.count, d.limit), d.floor) }

// resize gives the queue another limit, as is possible in SQD. The newest
// resources stay.
func (d *rdQueue) resize(limit uint64) {
	old := *d
	*d = rdQueue{limit: limit}
	if len(old.ring) == 0 || limit == 0 {
		return
	}
	d.ring, d.count, d.floor = make([]resource, limit), old.count, old.floor
	for i := max(old.begin(), d.begin()); i != d.count; i++ {
		if *d.at(i) = *old.at(i); d.at(i).due {
			d.due++
		}
	}
}

// add makes a place for a resource whose responses are due.
func (d *rdQueue) add(res resource) {
	if len(d.ring) == 0 {
		d.ring = make([]resource, d.limit)
	}
	res.due = true
	if d.count-d.begin() == d.limit && d.at(d.count).due {
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
	for d.low = max(d.low, d.begin()); !d.at(d.low).due; d.low++ {
	}
	return d.at(d.low)
}

// find returns the resource to which psn belongs.
func (d *rdQueue) find(psn bth.PSN) (i uint64, res *resource) {
	for i := d.count; i != d.begin(); i-- {
		if res := d.at(i - 1); distance(res.first, psn) < res.span {
			return i - 1, res
		}
	}
	return 0, nil
}

// repeat makes the responses of resource i from the k-th on due again.
func (d *rdQueue) repeat(i uint64, k uint32) {
	res := d.at(i)
	if !res.due {
		res.due = true
		d.due++
	}
	res.start, res.next = k, k
	d.low = min(d.low, i)
}

func (d *rdQueue) done(res *resource) {
	res.due, res.given = false, true
	d.due--
}

func (d *rdQueue) clear() { *d = rdQueue{limit: d.limit} }

// expire forgets resources that cannot be asked for again: half of the circle of PSNs
// behind the expected one they would count as ahead of it (IBTA vol.1 9.7.1). What is
// forgotten has been answered, for the peer has gone on.
func (d *rdQueue) expire(expected bth.PSN) {
	for i := d.begin(); i != d.count; i++ {
		res := d.at(i)
		if distance(res.first, expected) < maxSpan {
			return
		}
		if res.due {
			d.due--
		}
		d.floor = i + 1
	}
}

// room implements admission.
func (a *inOrder) room() bool { return a.rd.room(uint64(a.r.q.attr.MaxDestRdAtomic)) }

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
	a.rd.add(res)
}

// duplicate answers a request that has been executed before (IBTA vol.1
// 9.7.5.1.3): SEND and WRITE are acknowledged, READs executed again, from the
// middle if asked so, and atomics answered from the saved result.
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
		a.wantAck(p.PSN)
	}
	return DropDuplicate
}

// repeatRead: what is asked for again must lie inside what was granted before.
func (a *inOrder) repeatRead(p *bth.Packet) {
	i, res := a.rd.find(p.PSN)
	if res == nil || res.atomic || res.write || res.rkey != p.RETH.RKey {
		return
	}
	k := distance(res.first, p.PSN)
	done := k * uint32(a.r.q.mtu)
	n := p.RETH.Length
	if p.RETH.VA != res.va+uint64(done) || n > res.length-done || n == 0 && res.length != 0 {
		return
	}
	res.msn, res.end = a.r.msn, done+n
	a.rd.repeat(i, k)
}
