package nic

import (
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
)

// turnRound deals with a packet whose payload a switch has cut off, as NDP does (Handley et al.,
// SIGCOMM 2017, 3.2): what is left of it goes back to the NIC that has sent it, which sends it again
// ahead of others. Queue pairs see it late and do not know.
func (n *NIC) turnRound(now engine.Time, d *fabric.Packet) {
	if d.Back() {
		p := n.k.slab.at(d.Ref)
		d.Again(p.bytes, p.class)
		n.giveBack(now, d)
		return
	}
	n.k.Cut++
	*n.cut.Push() = d
	if !n.pullTimer.Pending() {
		n.k.eng.Set(&n.pullTimer, n.nextPull)
	}
}

// pull sends back one of those that have been cut. They go at the pace at which what is sent again
// can come in: otherwise senders would fill the link with pieces of what they send in vain.
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

func (n *NIC) giveBack(now engine.Time, d *fabric.Packet) {
	*n.returns.Push() = d
	n.link.Wake(now)
}
