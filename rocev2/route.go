package rocev2

import "roced.io/roced/plugin/mono"

// RouteBits ranks routes: that to an address of our own is the best one, then those
// over prefixes by their length; 0 is that over a default gateway.
type RouteBits int

// routeOwn is better than any prefix.
const routeOwn RouteBits = 129

// Source returns the entry of the GID table from which packets for dst go, and how
// specific the way is; false if there is none.
func (n *NIC) Source(dst GID) (e GIDEntry, bits RouteBits, ok bool) {
	t := &n.net.addrs
	a := dst.Addr()
	bits = -1
	covered := RouteBits(0)
	for g := range t.live {
		if g.GID == dst {
			return *g, routeOwn, true
		}
		from := g.GID.Addr()
		for _, p := range t.prefixes {
			if p.vlan != g.VLAN || !p.Contains(a) || from.IsLinkLocalUnicast() != a.IsLinkLocalUnicast() {
				continue
			}
			covered = max(covered, RouteBits(p.Bits()))
			if p.Contains(from) && RouteBits(p.Bits()) > bits {
				e, bits = *g, RouteBits(p.Bits())
			}
		}
	}
	if bits >= 0 {
		return e, bits, true
	}
	for g := range t.live {
		if g.GID.is4() != dst.is4() || g.GID.Addr().IsLinkLocalUnicast() {
			continue
		}
		if _, ok := t.nextHop(dst, g.VLAN); ok {
			return *g, covered, true
		}
	}
	return e, 0, false
}

// ResolveNeighbour finds out whether the next hop on the way to dst answers, and
// reports that to done: at once or, if it has to be asked, from one of the NIC's
// later calls. src is the entry of the GID table that asks.
func (n *NIC) ResolveNeighbour(now mono.Time, dst GID, src uint8, done func(now mono.Time, err error)) error {
	p, err := n.newPath(now, AddressVector{DGID: dst, SGIDIndex: src})
	if err != nil {
		return err
	}
	nb := p.nb
	if nb == nil || nb.usable() {
		n.releasePath(&p)
		done(now, nil)
		return nil
	}
	if nb.state == neighFailed { // ask again now: somebody wants to know
		nb.state, nb.tries = neighIncomplete, 0
		n.probe(now, nb)
	}
	nb.waiters = append(nb.waiters, func(now mono.Time, err error) {
		n.releasePath(&p)
		done(now, err)
	})
	return nil
}

// answerWaiters tells those who wait for nb how it has ended.
func (nb *neighbour) answerWaiters(now mono.Time, err error) {
	waiters := nb.waiters
	nb.waiters = nil
	for _, f := range waiters {
		f(now, err)
	}
}
