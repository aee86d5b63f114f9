package rocev2

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// A peer of RC has one guess at an rkey, because a wrong one breaks the queue pair (IBTA vol.1 9.7.4.1.5). UC drops
// packets with a wrong one and continues (9.8.2.2.5). So do the extended transports with a packet ahead of a gap, which
// gives an attacker one guess per packet. So the NIC breaks a queue pair with more of them than errors can explain: at
// maxGuesses, of which one is forgiven every forgiveAfter. With 16,000 regions, 1 in 500 queue pairs broken that way has
// been hit.
const (
	maxGuesses   = 512
	forgiveAfter = time.Second
)

// guesses counts the refused packets of a queue pair's peer.
type guesses struct {
	n     uint16
	since uint32 // when one was last forgiven, in units of forgiveAfter
}

// add counts one more at now and reports whether that is too many.
func (g *guesses) add(now mono.Time) bool {
	t := uint32(now / mono.Time(forgiveAfter))
	g.n -= uint16(min(uint32(g.n), t-g.since))
	g.since = t
	g.n++
	return g.n >= maxGuesses
}

// refused follows a packet whose access q has refused.
func (n *NIC) refused(now mono.Time, q *QueuePair) {
	if q.core.State() == qp.Err {
		return // that was the only guess, and the transport has counted it
	}
	n.ctr.RespRemoteAccessErrors++
	if q.guesses.add(now) && q.core.Modify(now, qp.Attr{State: qp.Err}, qp.AttrState) == nil {
		n.ctr.RKeyGuesses++
		n.cfg.Events.QPEvent(q, qp.EventQPAccessErr)
	}
}
