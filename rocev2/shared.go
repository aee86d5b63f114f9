package rocev2

import (
	"fmt"
	"net/netip"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// A NIC that shares an interface with a kernel (Config.Shared) has neither ARP nor
// neighbour discovery nor routes of its own. For every destination that it sends to
// it has one question, which PollQuery gives out: to what station do packets go?
// The kernel's tables know; Resolved and Unreachable bring the answers, also unasked
// when something changes. Questions are repeated at the pace of ARP requests until there
// is an answer, so that they, and answers, may be lost.

// Query asks for the station to which packets from Src to Dst go.
type Query struct{ Dst, Src GID }

// queryRing holds the questions that nobody has taken yet, one of each neighbour and
// more. One that finds it full is dropped: it will be repeated.
type queryRing struct {
	slots     [neighLimit]Query
	head, len int
}

func (r *queryRing) push(q Query) {
	if r.len < len(r.slots) {
		r.slots[(r.head+r.len)%len(r.slots)] = q
		r.len++
	}
}

// PollQuery returns the oldest question; ok is false when there is none.
func (n *NIC) PollQuery() (q Query, ok bool) {
	r := &n.net.neigh.asked
	if r.len == 0 {
		return Query{}, false
	}
	q = r.slots[r.head]
	r.head = (r.head + 1) % len(r.slots)
	r.len--
	return q, true
}

// Resolved tells that packets to dst go to the station mac. It is ignored for a
// destination that nobody sends to.
func (n *NIC) Resolved(now mono.Time, dst GID, mac MAC) {
	if nb := n.net.neigh.byAddr[station{addr: dst}]; nb != nil && mac.unicast() {
		n.learn(now, nb, mac)
	}
}

// Unreachable tells that there is no way to dst for now.
func (n *NIC) Unreachable(now mono.Time, dst GID) {
	if nb := n.net.neigh.byAddr[station{addr: dst}]; nb != nil && nb.state != neighFailed {
		n.fail(now, nb)
	}
}

// Destinations returns the questions whose answers matter, for who has to find out
// whether they have changed.
func (n *NIC) Destinations() []Query {
	out := make([]Query, 0, len(n.net.neigh.list))
	for _, nb := range n.net.neigh.list {
		out = append(out, Query{Dst: nb.addr, Src: nb.src})
	}
	return out
}

// Interface is what a shared NIC takes over from its interface.
type Interface struct {
	MAC    MAC
	Addrs  []netip.Prefix
	Routes []netip.Prefix // see Config.Routes
}

// SetInterface makes a shared NIC follow its interface. An address keeps its place in
// the GID table while it is there, and gets it again when it comes back. Paths
// that exist keep their source address, and take a new MAC over.
func (n *NIC) SetInterface(i *Interface) error {
	if !i.MAC.unicast() {
		return fmt.Errorf("%w: %x", ErrMAC, i.MAC[:])
	}
	cfg := n.cfg
	cfg.MAC, cfg.Addrs, cfg.Routes = i.MAC, i.Addrs, i.Routes
	t, err := n.net.addrs.from(&cfg)
	if err != nil {
		return err
	}
	old := n.net.addrs
	n.net.addrs = t
	if cfg.MAC != n.cfg.MAC {
		n.changeMAC(&cfg.MAC)
	}
	n.cfg = cfg
	if !old.sameGIDs(&t) {
		n.portEvent(qp.EventGIDChange)
	}
	return nil
}

// changeMAC puts mac into the headers of all paths.
func (n *NIC) changeMAC(mac *MAC) {
	for q := range n.obj.qps.all {
		copy(q.path.hdr[6:12], mac[:])
	}
	for a := range n.obj.ahs.all {
		copy(a.path.hdr[6:12], mac[:])
	}
}

// String formats the address.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MAC returns the Ethernet address of the NIC.
func (n *NIC) MAC() MAC { return n.cfg.MAC }

func (t *addrTable) sameGIDs(o *addrTable) bool {
	if len(t.gids) != len(o.gids) {
		return false
	}
	for i := range t.gids {
		if t.gids[i] != o.gids[i] {
			return false
		}
	}
	return true
}
