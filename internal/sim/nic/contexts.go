package nic

import (
	"slices"

	"roced.io/roced/internal/sim/engine"
)

// Contexts is the cost of many queue pairs: a NIC holds the state of some, and fetches that of others from the host's memory
// before it sends their packets. The zero value holds all.
type Contexts struct {
	// Held is the number of queue pairs whose state the NIC holds, those that sent last; zero: all.
	Held int
	// Fetch is the time to fetch the state of another one. The NIC sends nothing meanwhile.
	Fetch engine.Time
}

// contexts are the queue pairs whose state a NIC holds, the one that sent last at the end.
type contexts struct {
	held  []*QP
	ready engine.Time // end of the last fetch
	timer engine.Timer
}

// holds reports whether the state of q is in the NIC. Otherwise it begins to fetch it.
func (n *NIC) holds(now engine.Time, q *QP) bool {
	c := &n.k.cfg.Contexts
	if c.Held == 0 {
		return true
	}
	held := n.contexts.held
	if i := slices.Index(held, q); i >= 0 {
		copy(held[i:], held[i+1:])
		held[len(held)-1] = q
		return true
	}
	if len(held) == c.Held {
		held = slices.Delete(held, 0, 1)
	}
	n.contexts.held = append(held, q)
	n.contexts.ready = now + c.Fetch
	n.k.eng.Set(&n.contexts.timer, n.contexts.ready)
	return false
}
