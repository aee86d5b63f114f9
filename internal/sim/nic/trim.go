package nic

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
)

// turnRound processes a packet whose payload a switch has trimmed, as NDP does (Handley et al., SIGCOMM 2017, 3.2).
// The header returns to the sending NIC, which retransmits the packet ahead of others. Queue pairs see only a late
// packet.
func (n *NIC) turnRound(now engine.Time, d *fabric.Packet) {
	if d.Back() {
		p := n.k.slab.at(d.Ref)
		d.Again(p.bytes, p.class)
		n.k.reset(d.Ref, p)
		n.giveBack(now, d)
		return
	}
	n.k.cut++
	*n.cut.Push() = d
	if !n.pullTimer.Pending() {
		n.k.eng.Set(&n.pullTimer, n.nextPull)
	}
}

// pull returns one trimmed packet. The pace is the rate at which this link can receive retransmissions. Otherwise
// senders would fill it with packets that are trimmed again.
func (n *NIC) pull(now engine.Time) {
	d := *n.cut.Oldest()
	n.cut.Head++
	bytes := n.k.slab.at(d.Ref).bytes
	n.nextPull = now + engine.Time(uint64(bytes)*8e12/n.link.Rate())
	if n.cut.Len() > 0 {
		n.k.eng.Set(&n.pullTimer, n.nextPull)
	}
	d.Return()
	n.giveBack(now, d)
}

// trimmed passes the packet in n.k.in, of MRC, to its queue pair, with the headers that trimming leaves.
func (n *NIC) trimmed(m mono.Time, q *QP, lastHop bool) {
	p := &n.k.in
	p.RETH, p.Imm, p.Payload = bth.RETH{}, 0, nil
	n.k.cut++
	meta := n.meta
	if meta.Trim = mrc.Trimmed; lastHop {
		meta.Trim = mrc.TrimmedLastHop
	}
	q.core.Receive(m, p, meta)
}

func (n *NIC) giveBack(now engine.Time, d *fabric.Packet) {
	*n.returns.Push() = d
	n.wakeLinks(now)
}
