package stack

import (
	"fmt"
	"net/netip"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// A stack that shares an interface with a kernel (Config.Shared) has no ARP, neighbour discovery or routes of its
// own. For every destination it has one Query: which station do packets go to? PollQuery returns the queries, and
// the kernel's tables answer them. Resolved and Unreachable deliver the answers, also unasked after a change. The
// stack repeats queries at the pace of ARP requests until an answer arrives, so that both may be lost.

// Query requests the station to which packets from Src to Dst go.
type Query struct{ Dst, Src inet.GID }

// queryRing holds the queries that PollQuery has not returned. It has room for one of each neighbour and more. When
// it is full, push drops the query: it will be repeated.
type queryRing struct {
	slots     [NeighLimit]Query
	head, len int
}

func (r *queryRing) push(q Query) {
	if r.len < len(r.slots) {
		r.slots[(r.head+r.len)%len(r.slots)] = q
		r.len++
	}
}

// PollQuery removes and returns the oldest query; ok is false when there is none.
func (s *Stack) PollQuery() (q Query, ok bool) {
	r := &s.neigh.queries
	if r.len == 0 {
		return Query{}, false
	}
	q = r.slots[r.head]
	r.head = (r.head + 1) % len(r.slots)
	r.len--
	return q, true
}

// Resolved reports that packets to dst go to the station mac. The stack ignores destinations without a path.
func (s *Stack) Resolved(now mono.Time, dst inet.GID, mac inet.MAC) {
	if nb := s.neigh.byAddr[Address{Addr: dst}]; nb != nil && mac.Unicast() {
		s.Learn(now, nb, mac)
	}
}

// Unreachable reports that dst has no route for now.
func (s *Stack) Unreachable(now mono.Time, dst inet.GID) {
	if nb := s.neigh.byAddr[Address{Addr: dst}]; nb != nil && nb.State != Failed {
		s.fail(now, nb)
	}
}

// Destinations returns the queries of all neighbours. Their answers may have changed.
func (s *Stack) Destinations() []Query {
	out := make([]Query, 0, len(s.neigh.list))
	for _, nb := range s.neigh.list {
		out = append(out, Query{Dst: nb.Addr, Src: nb.src})
	}
	return out
}

// Interface is the configuration that a shared stack takes over from its interface.
type Interface struct {
	MAC    inet.MAC
	Addrs  []netip.Prefix
	Routes []netip.Prefix // see Config.Routes
}

// SetInterface makes a shared stack follow its interface and reports whether the GID table has changed. An address
// keeps its place in the GID table while it is present, and gets it again when it returns. Existing paths keep
// their source address; the caller passes a new MAC to them with Path.SetSource.
func (s *Stack) SetInterface(i *Interface) (changed bool, err error) {
	if !i.MAC.Unicast() {
		return false, fmt.Errorf("%w: %x", ErrMAC, i.MAC[:])
	}
	cfg := s.cfg
	cfg.MAC, cfg.Addrs, cfg.Routes = i.MAC, i.Addrs, i.Routes
	t, err := s.addrs.from(&cfg)
	if err != nil {
		return false, err
	}
	changed = t.changed(&s.addrs)
	s.addrs, s.cfg = t, cfg
	return changed, nil
}
