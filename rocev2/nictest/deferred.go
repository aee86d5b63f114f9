package nictest

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Deferred is memory whose accesses end later, in order: each after a random time of up to deferral, some together with the
// previous one.
type Deferred struct {
	*RemoteMemory
	node    *Node
	Stopped bool // no access ends
	queue   []deferredAccess
	Started int // accesses so far
}

type deferredAccess struct {
	at mono.Time
	a  *rocev2.MemoryAccess
}

// deferral bounds the duration of an access to Deferred memory.
const deferral = 20 * time.Microsecond

// Start implements rocev2.Deferred.
func (d *Deferred) Start(a *rocev2.MemoryAccess) {
	p := d.node.pair
	at := p.now
	if p.RNG.IntN(4) > 0 {
		at = at.Add(time.Duration(p.RNG.Int64N(int64(deferral))))
	}
	if n := len(d.queue); n > 0 {
		at = max(at, d.queue[n-1].at)
	}
	d.Started++
	d.queue = append(d.queue, deferredAccess{at, a})
}

// next returns when the next access ends.
func (d *Deferred) next() mono.Time {
	if len(d.queue) == 0 || d.Stopped {
		return mono.Never
	}
	return d.queue[0].at
}

// nextDeferred returns when the next access to memory of n ends.
func (n *Node) nextDeferred() mono.Time {
	t := mono.Never
	for _, d := range n.deferred {
		t = t.Min(d.next())
	}
	return t
}

// advanceDeferred ends the accesses that are due.
func (n *Node) advanceDeferred(now mono.Time) {
	for _, d := range n.deferred {
		for d.next() <= now {
			a := d.queue[0].a
			d.queue = d.queue[1:]
			a.Run(d.RemoteMemory)
			n.NIC.Accessed(now, a)
		}
	}
}
