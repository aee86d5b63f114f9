package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// PollTransmit returns the next frame to send, nil if there is none now. The link must have sent the previous frame by
// then. The work of one call is bounded: after many loopback or discarded frames it may return nil before all is done,
// and then NextTimeout is past.
func (n *NIC) PollTransmit(now mono.Time) *link.Frame {
	n.now = now
	n.flushRun()
	n.sch.again = false
	n.left(now)
	n.failOverflowed(now)
	if n.tx.shaped = n.cfg.Bucket != nil && !n.cfg.Bucket.Ready(now); n.tx.shaped {
		return nil
	}
	for range txTurns {
		n.left(now)
		n.deliverOwn(now)
		f := n.nextControl()
		if f == nil {
			if f = n.net.NextHeld(); f != nil {
				n.tx.segs = 1
			}
		}
		if f == nil {
			f = n.nextData(now)
		}
		if f == nil {
			f = n.nextControl() // the data path has requested an address
		}
		if f == nil {
			n.sch.again = n.sch.again || len(n.obj.failing) > 0
			return nil
		}
		if !n.dispose(now, f) {
			if n.tx.away = n.tx.queue != nil; n.tx.away {
				n.contention.Used(now, n.tx.queue.node.share.key.Client)
			}
			if n.cfg.Bucket != nil && !f.Forwarded {
				n.cfg.Bucket.Charge(now, f.WireLen(max(n.tx.segs, 1)))
			}
			return f
		}
	}
	n.left(now)
	n.sch.again = true
	return nil
}

// nextControl returns the oldest control frame. left removes it.
func (n *NIC) nextControl() *link.Frame {
	f := n.net.NextControl()
	if f != nil {
		n.tx.control, n.tx.segs = true, 1
	}
	return f
}

// dispose counts a frame and shows it to the observer. It reports whether the frame does not go to the link: the link is
// down, the peer is on this NIC, or the peer's address is unknown. A port with fault rules also takes the frames to this
// NIC, and shows frames itself.
func (n *NIC) dispose(now mono.Time, f *link.Frame) bool {
	if f.Forwarded {
		return false
	}
	b, faults := &n.tx, n.cfg.Offload.Faults
	data := b.queue != nil
	own := data && b.path.Local() || !data && inet.MAC(f.Bufs[0]) == n.net.MAC()
	member := uint32(0)
	if data {
		member = n.memberOf(b.path)
	}
	switch {
	case own:
	case member != 0:
	case data && b.path.Group:
		n.keepOwn(f)
	case data && b.path.Next.State == stack.Incomplete:
		n.net.Hold(b.path.Next, f)
		return true
	}
	if !n.up && !own {
		n.ctr.PortXmitDiscards += uint64(max(b.segs, 1))
		n.observeTx(now, f, "dropped: link is down")
		return true
	}
	n.ctr.countTx(f, max(b.segs, 1))
	if f.Unseen = faults; !faults {
		n.observeTx(now, f, "")
	}
	if own && !faults {
		n.loopback(now, f)
		return true
	}
	if member == 0 {
		return false
	}
	if to := n.sw.local(member); to != nil && !faults && !to.cfg.Offload.Faults {
		n.deliver(now, to, f)
		return true
	}
	_, f.Across = n.sw.target(member)
	return false
}

// loopback delivers a frame to our own address.
func (n *NIC) loopback(now mono.Time, f *link.Frame) {
	b := &n.tx
	size := f.SegSize
	b.loop = f.AppendTo(b.loop[:0])
	n.left(now)
	n.Receive(now, b.loop, size)
}

// observeTx shows f to the observer, segmented.
func (n *NIC) observeTx(now mono.Time, f *link.Frame, comment string) {
	if n.obs == nil {
		return
	}
	b := &n.tx
	b.obs = f.AppendTo(b.obs[:0])
	if f.SegSize == 0 {
		n.obs.Frame(now, link.Tx, b.obs, comment)
		return
	}
	for i := range b.segs {
		b.one = link.Segment(b.one[:0], b.obs, f.SegSize, i)
		n.obs.Frame(now, link.Tx, b.one, comment)
	}
}

// nextData returns the next frame of the active queue pairs, which take turns.
func (n *NIC) nextData(now mono.Time) *link.Frame {
	for range txTurns {
		q := n.chosen()
		if q == nil {
			return nil
		}
		if n.mustResolve(q) {
			n.sch.await(now, q)
			continue
		}
		f, drained := n.fill(now, q)
		if n.tx.pending != q {
			n.prioritiseNext(q)
			n.sch.endTurn(now, q, drained)
		}
		if f != nil {
			return f
		}
		n.left(now)
	}
	n.sch.again = n.chosen() != nil
	return nil
}

// chosen returns the queue pair that sends next, nil if all are idle: the one whose packet did not fit the previous
// frame, else the one whose turn it is.
func (n *NIC) chosen() *QueuePair {
	if q := n.tx.pending; q != nil {
		return q
	}
	if turn := n.sch.turns.Next(); turn != nil {
		return turn.Item
	}
	return nil
}

// mustResolve reports whether q must wait for the address of its peer. A packet that it has produced must leave first.
func (n *NIC) mustResolve(q *QueuePair) bool {
	nb := q.path.Next
	return q.typ != qp.UD && nb != nil && nb.State == stack.Incomplete && n.tx.pending != q && n.memberOf(&q.path) == 0
}

// fill builds one frame of packets of q. It is a super-frame while they have the same destination, path and length; a
// shorter one may be the last. A packet with a traffic class of its own, such as a CNP (IBTA annex A17.9.3), has its own frame.
// drained: q has nothing more.
func (n *NIC) fill(now mono.Time, q *QueuePair) (f *link.Frame, drained bool) {
	b := &n.tx
	b.segs, b.forwarded, b.ahead = 0, 0, readAhead{}
	if q.endpoint != nil && q.ports != q.endpoint.ports {
		n.applyPorts(now, q)
	}
	to := n.across(&q.path)
	if b.burst = to != nil && n.plain(to); b.burst {
		b.source, to.pulled = origin{}, pulled{}
	}
	drained, ok := n.pack(now, q, n.net.TakeID(0))
	if !ok {
		n.ctr.MemoryFaults++
		b.off = b.start
	}
	if b.forwarded > 0 {
		b.frame = link.Frame{Forwarded: true, Len: b.forwarded}
		return &b.frame, drained
	}
	if b.segs == 0 {
		return nil, drained
	}
	f = b.finish(n.net.TakeID(b.segs))
	f.Apart = b.segs > 1 && n.net.Apart(b.path)
	return f, drained
}

// pack puts packets into the frame. It returns ok == false if the memory of the latest packet, which is lost, has gone
// since its view.
func (n *NIC) pack(now mono.Time, q *QueuePair, id uint16) (drained, ok bool) {
	defer mapped.Recover(&ok)
	b := &n.tx
	for b.more() {
		var taken bool
		if taken, drained = n.take(now, q); !taken {
			break
		}
		size, class := b.t.Packet.WireLen(), n.classOf(&b.t.Packet)
		if !n.sendable(now, q, size) {
			q.node.turn.Charge(size)
			continue
		}
		to := n.shortcut()
		if to == nil && b.burst && !n.readPayload() {
			ok = false
			break
		}
		if b.forwarded > 0 && to == nil || b.segs > 0 && to != nil {
			b.pending = q
			break
		}
		if to != nil {
			q.node.turn.Charge(size)
			if ok = n.forward(now, to, size); !ok {
				break
			}
			continue
		}
		if b.segs > 0 && (b.to != b.path || b.t.Path != b.entropy || size > b.segSize || class != 0) {
			b.pending = q
			break
		}
		if b.segs == 0 {
			b.begin(b.to, size, b.t.Path)
			if member := n.memberOf(b.to); member != 0 {
				mac, _ := n.sw.target(member)
				copy(b.arena, mac[:])
				b.unsealed = n.cfg.Offload.Unsealed && n.obs == nil && n.up && n.sw.local(member) == nil
			}
			if class != 0 {
				b.path.SetTrafficClass(b.arena, uint8(class))
			}
		}
		q.node.turn.Charge(size)
		b.add(&b.t.Packet, id, size, b.t.Snapshot)
		n.ctr.countPacket(b.t.Packet.Opcode)
		if size < b.segSize || class != 0 || n.single() {
			break
		}
	}
	return drained, true
}

// Class is a traffic class, DSCP and ECN bits. The zero Class stands for that of the connection.
type Class uint16

// ClassOf returns a Class with these DSCP and ECN bits.
func ClassOf(dscp, ecn uint8) Class { return 1<<8 | Class(dscp<<2|ecn&inet.ECNMask) }

// classOf returns the traffic class of a packet, 0 for that of its connection.
func (n *NIC) classOf(p *bth.Packet) Class {
	c := &n.cfg
	switch {
	case p.Opcode.IsCNP():
		return c.CNPClass
	case c.ACKClass|c.NAKClass == 0 || !p.Opcode.IsAck():
		return 0
	case p.AETH.Syndrome.IsACK():
		return c.ACKClass
	}
	return c.NAKClass
}

// more reports whether there is room for another packet.
func (b *txState) more() bool {
	if b.segs == 0 {
		return b.forwarded < maxBurst
	}
	return b.fits()
}

// single reports whether the frame must remain a single one: it waits for its neighbour.
func (n *NIC) single() bool {
	p := n.tx.path
	return p.Next != nil && !p.Next.Usable() && n.memberOf(p) == 0
}

// take gets the waiting packet of q, or the next one, with its path. drained: q has nothing more.
func (n *NIC) take(now mono.Time, q *QueuePair) (ok, drained bool) {
	b := &n.tx
	if b.pending == q {
		b.pending, b.queue = nil, q
		return true, false
	}
	if b.segs == 0 && b.forwarded == 0 && q.node.turn.Spent() { // on packets that could not be sent
		return false, false
	}
	b.gathering = false
	if !q.machine().PollTransmit(now, &b.t) {
		return false, true
	}
	q.defers.sent()
	if b.t.Packet.Opcode == bth.OpcodeMRCEndpointRequest {
		n.number(q, &b.t.Packet)
	}
	b.queue, b.to = q, &q.path
	if q.typ == qp.UD {
		b.to = n.lookupAH(q, b.t.AH)
	}
	return true, false
}

// sendable reports whether the latest packet can go to its path. If not, it is discarded and counted.
func (n *NIC) sendable(now mono.Time, q *QueuePair, size int) bool {
	p := n.tx.to
	if p == nil || !p.Valid() {
		n.ctr.TxDroppedNoPath++
		return false
	}
	if p.Len()-p.L2()+size > n.net.MTU() {
		n.ctr.TxDroppedMTU++
		return false
	}
	if p.Next == nil || n.memberOf(p) != 0 {
		return true
	}
	n.net.Reuse(now, p.Next)
	if p.Next.State == stack.Failed || q.typ != qp.UD && !p.Next.Usable() {
		n.net.Counters.TxDroppedUnreachable++
		return false
	}
	return true
}
