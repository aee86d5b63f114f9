package rocev2

import (
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// PollTransmit returns the next frame to send, nil if there is none now. The frame
// returned before has left by then. The work of one call is bounded: when much is
// sent to ourselves or discarded, it can return nil before all is done, and then
// NextTimeout is past.
func (n *NIC) PollTransmit(now mono.Time) *Frame {
	n.now = now
	n.flushRun()
	n.sch.again = false
	n.left(now)
	n.failOverflowed(now)
	for range txTurns {
		n.left(now)
		n.deliverOwn(now)
		f := n.nextControl()
		if f == nil {
			f = n.nextHeld()
		}
		if f == nil {
			f = n.nextData(now)
		}
		if f == nil {
			f = n.nextControl() // the data path has asked for an address
		}
		if f == nil {
			n.sch.again = n.sch.again || len(n.obj.failing) > 0
			return nil
		}
		if !n.dispose(now, f) {
			n.net.tx.away = n.net.tx.queue != nil
			return f
		}
	}
	n.left(now)
	n.sch.again = true
	return nil
}

// dispose counts a frame and shows it to the observer. It reports whether the
// frame does not go to the link: the link is down, the peer is on this NIC, or the
// peer's address is not known yet.
func (n *NIC) dispose(now mono.Time, f *Frame) bool {
	b := &n.net.tx
	data := b.queue != nil
	if data && b.path.group {
		n.keepOwn(f)
	} else if data && b.path.nb == nil || !data && MAC(f.Bufs[0]) == n.cfg.MAC {
		n.ctr.countTx(f, b.segs)
		n.observeTx(now, f, "")
		n.loopback(now, f)
		return true
	}
	if data && !b.path.group && b.path.nb.state == neighIncomplete {
		n.hold(b.path.nb, f)
		return true
	}
	if !n.net.up {
		n.ctr.PortXmitDiscards += uint64(max(b.segs, 1))
		n.observeTx(now, f, "dropped: link is down")
		return true
	}
	n.ctr.countTx(f, max(b.segs, 1))
	n.observeTx(now, f, "")
	return false
}

// loopback gives a frame to our own address back to us.
func (n *NIC) loopback(now mono.Time, f *Frame) {
	b := &n.net.tx
	size := f.SegSize
	b.loop = f.AppendTo(b.loop[:0])
	n.left(now)
	n.Receive(now, b.loop, size)
}

// observeTx shows f to the observer, cut apart.
func (n *NIC) observeTx(now mono.Time, f *Frame, comment string) {
	if n.obs == nil {
		return
	}
	b := &n.net.tx
	b.obs = f.AppendTo(b.obs[:0])
	if f.SegSize == 0 {
		n.obs.Frame(now, Tx, b.obs, comment)
		return
	}
	for i := range b.segs {
		b.one = Segment(b.one[:0], b.obs, f.SegSize, i)
		n.obs.Frame(now, Tx, b.one, comment)
	}
}

// nextData returns the next frame of the active queue pairs, which take turns.
func (n *NIC) nextData(now mono.Time) *Frame {
	for range txTurns {
		q := n.chosen()
		if q == nil {
			return nil
		}
		if n.awaitPeer(now, q) {
			continue
		}
		f, drained := n.fill(now, q)
		n.endTurn(q, drained)
		if f != nil {
			return f
		}
		n.left(now)
	}
	n.sch.again = n.chosen() != nil
	return nil
}

// chosen returns the queue pair that sends next, nil if none has anything to send: one
// whose packet did not fit into the frame before, else the one whose turn it is.
func (n *NIC) chosen() *QueuePair {
	if q := n.net.tx.pending; q != nil {
		return q
	}
	if turn := n.sch.turns.Next(); turn != nil {
		return turn.Item
	}
	return nil
}

// fill makes one frame of packets of q: a super-frame while they go to the same
// place by one path and have one length; a shorter one may be the last. A CNP has a frame of its
// own, in a traffic class of its own and never marked (IBTA annex A17.9.3). drained
// says that q has nothing more.
func (n *NIC) fill(now mono.Time, q *QueuePair) (f *Frame, drained bool) {
	b := &n.net.tx
	b.segs, b.ahead = 0, readAhead{}
	id := n.takeID(0)
	for b.segs == 0 || b.fits() {
		var ok bool
		if ok, drained = n.take(now, q); !ok {
			break
		}
		size, cnp := b.t.Packet.WireLen(), b.t.Packet.Opcode.IsCNP()
		if !n.sendable(now, q, size) {
			q.node.turn.Charge(size)
			continue
		}
		if b.segs > 0 && (b.to != b.path || b.t.Path != b.port || size > b.segSize || cnp) {
			b.pending = q
			break
		}
		if b.segs == 0 {
			b.begin(b.to, size, b.t.Path)
			if cnp {
				b.setTrafficClass(n.cfg.CNPDSCP << 2)
			}
		}
		q.node.turn.Charge(size)
		b.add(&b.t.Packet, id, size, b.t.Snapshot)
		n.ctr.countPacket(b.t.Packet.Opcode)
		if size < b.segSize || cnp || b.single() {
			break
		}
	}
	if b.segs == 0 {
		return nil, drained
	}
	f = b.finish(n.takeID(b.segs))
	f.Apart = b.segs > 1 && n.apart(b.path)
	return f, drained
}

// single reports whether the frame must remain a single one: it waits for its
// neighbour.
func (b *txState) single() bool {
	return b.path.nb != nil && !b.path.nb.usable()
}

// take gets the packet of q that waits, or the next one, with its path. drained says
// that q has nothing more.
func (n *NIC) take(now mono.Time, q *QueuePair) (ok, drained bool) {
	b := &n.net.tx
	if b.pending == q {
		b.pending, b.queue = nil, q
		return true, false
	}
	if b.segs == 0 && q.node.turn.Spent() { // by packets that could not be sent
		return false, false
	}
	if !q.machine().PollTransmit(now, &b.t) {
		return false, true
	}
	q.defers.sent()
	b.queue, b.to = q, &q.path
	if q.typ == qp.UD {
		b.to = n.lookupAH(q, b.t.AH)
	}
	return true, false
}

// sendable reports whether the packet just taken can go to its path; if not, it is
// discarded and counted.
func (n *NIC) sendable(now mono.Time, q *QueuePair, size int) bool {
	p := n.net.tx.to
	if p == nil || p.hdrLen == 0 {
		n.ctr.TxDroppedNoPath++
		return false
	}
	if int(p.hdrLen)-int(p.l2)+size > n.net.mtu {
		n.ctr.TxDroppedMTU++
		return false
	}
	if p.nb == nil {
		return true
	}
	n.reuse(now, p.nb)
	if p.nb.state == neighFailed || q.typ != qp.UD && !p.nb.usable() {
		n.ctr.TxDroppedUnreachable++
		return false
	}
	return true
}
