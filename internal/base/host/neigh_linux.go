package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
)

// neighbours is a cache of the kernel's neighbour and route tables.
type neighbours struct {
	byHop map[netip.Addr]neighbour
	// via is the next hop of each queried destination.
	via map[netip.Addr]netip.Addr
}

// maxVia is the maximum number of cached destinations. The NIC has fewer.
const maxVia = 4096

// neighbour is an entry of the kernel's table (NUD states in linux/neighbour.h).
type neighbour struct {
	mac   inet.MAC
	state int
}

// usable reports whether packets can be sent to mac.
func (n neighbour) usable() bool {
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP
	return n.state&usable != 0 && n.mac != inet.MAC{}
}

// fresh reports whether the kernel sends to mac without a confirmation.
func (n neighbour) fresh() bool {
	return n.usable() && n.state&(unix.NUD_REACHABLE|unix.NUD_PERMANENT|unix.NUD_NOARP) != 0
}

// loadNeighbours reads the neighbour table.
func (f *Follower) loadNeighbours() error {
	f.table = neighbours{byHop: map[netip.Addr]neighbour{}, via: map[netip.Addr]netip.Addr{}}
	if f.state.Index == 0 {
		return nil
	}
	list, err := f.handle.NeighList(f.state.Index, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("neighbours on %s: %w", f.cfg.Interface, err)
	}
	for i := range list {
		if hop, n, ok := f.entry(&list[i]); ok {
			f.table.byHop[hop] = n
		}
	}
	return nil
}

// entry converts an entry of the table. ok is false for entries of other interfaces.
func (f *Follower) entry(k *netlink.Neigh) (hop netip.Addr, n neighbour, ok bool) {
	hop, ok = netip.AddrFromSlice(k.IP)
	if !ok || k.LinkIndex != f.state.Index || k.Family != unix.AF_INET && k.Family != unix.AF_INET6 {
		return hop, n, false
	}
	n.state = k.State
	if len(k.HardwareAddr) == len(n.mac) {
		n.mac = inet.MAC(k.HardwareAddr)
	}
	return hop, n, true
}

// neighbour handles a change of the table.
func (f *Follower) neighbour(h Handler, e *neighEvent) {
	hop, n, ok := f.entry(&e.Neigh)
	if !ok {
		return
	}
	before := f.table.byHop[hop]
	if e.gone {
		n = neighbour{}
		delete(f.table.byHop, hop)
	} else {
		f.table.byHop[hop] = n
	}
	if n.usable() && before.usable() && n.mac == before.mac {
		return
	}
	used := false
	for dst, via := range f.table.via {
		if via == hop {
			used = true
			f.tell(h, dst, n)
		}
	}
	if used && e.gone {
		f.probe(hop, netip.Addr{}) // it is still in use
	}
}

// tell reports the state of the next hop of dst to h, if it is final.
func (f *Follower) tell(h Handler, dst netip.Addr, n neighbour) {
	switch {
	case n.usable():
		h.Resolved(dst, n.mac)
	case n.state&unix.NUD_FAILED != 0:
		h.Unreachable(dst)
	}
}

// answer resolves a query and reports the result, if known. asked means that the NIC is about to send. In this case the
// kernel must resolve an unknown next hop and confirm a stale one.
func (f *Follower) answer(h Handler, q Query, asked bool) {
	hop, err := f.route(q)
	if err != nil {
		delete(f.table.via, q.Dst)
		h.Unreachable(q.Dst)
		return
	}
	if !hop.IsValid() {
		h.Resolved(q.Dst, inet.MAC{}) // no Ethernet address is needed
		return
	}
	if len(f.table.via) >= maxVia {
		clear(f.table.via)
		for _, d := range h.Destinations() {
			f.table.via[d.Dst], _ = f.route(d)
		}
	}
	f.table.via[q.Dst] = hop
	n := f.table.byHop[hop]
	if n.usable() {
		h.Resolved(q.Dst, n.mac)
	}
	if asked && !n.fresh() || !n.usable() {
		f.probe(hop, q.Src)
	}
}

// errNoRoute means that the kernel does not send to a destination over this interface.
var errNoRoute = errors.New("no route over this interface")

// route asks the kernel for the next hop on the link. The result is the zero address if the kernel routes the packets
// (Config.Routed) and needs no neighbour discovery on this interface. Otherwise the Follower resolves the next hop
// first: during neighbour discovery, which takes a second or more after a lost request, the kernel drops packets.
func (f *Follower) route(q Query) (netip.Addr, error) {
	if f.state.Index == 0 || !f.covered(q.Dst) {
		return netip.Addr{}, errNoRoute // without a route the kernel assumes that dst is on the link
	}
	opts := &netlink.RouteGetOptions{OifIndex: f.state.Index}
	if q.Src.IsValid() {
		opts.SrcAddr = net.IP(q.Src.AsSlice())
	}
	if f.cfg.Routed && !q.Dst.IsLinkLocalUnicast() {
		opts.OifIndex = 0
	}
	found, err := f.handle.RouteGetWithOptions(net.IP(q.Dst.AsSlice()), opts)
	if err != nil {
		return netip.Addr{}, err
	}
	if f.cfg.Routed && len(found) == 1 && (found[0].Type == unix.RTN_LOCAL ||
		found[0].Type == unix.RTN_UNICAST && (found[0].LinkIndex != f.state.Index || !f.discovery)) {
		return netip.Addr{}, nil
	}
	if len(found) != 1 || found[0].LinkIndex != f.state.Index || found[0].Type != unix.RTN_UNICAST {
		return netip.Addr{}, errNoRoute
	}
	hop := found[0].Gw
	if via, ok := found[0].Via.(*netlink.Via); ok {
		hop = via.Addr
	}
	if a, ok := netip.AddrFromSlice(hop); ok && !a.IsUnspecified() {
		return a.Unmap(), nil
	}
	return q.Dst, nil
}

// covered reports whether a route leads to dst over the interface.
func (f *Follower) covered(dst netip.Addr) bool {
	for _, p := range f.state.Routes {
		if p.Contains(dst) {
			return true
		}
	}
	return false
}

// discardPort is the destination port of probes (RFC 863).
const discardPort = 9

// probe makes the kernel resolve or confirm a next hop. It sends an empty datagram to the discard port, from src if that is
// valid. In contrast to NTF_USE of the neighbour table, this needs no privilege.
func (f *Follower) probe(hop, src netip.Addr) {
	if !src.IsValid() || src.Is4() != hop.Is4() {
		src = unspecified(hop.Is4()) // the kernel requires the same family
	}
	info := unix.Inet6Pktinfo{Ifindex: uint32(f.state.Index), Addr: src.As16()}
	to := unix.SockaddrInet6{Port: discardPort, Addr: hop.As16()}
	if hop.IsLinkLocalUnicast() {
		to.ZoneId = uint32(f.state.Index)
	}
	// This fails while the interface is down. The NIC repeats its query.
	_ = unix.Sendmsg(f.prober, nil, unix.PktInfo6(&info), &to, unix.MSG_DONTWAIT)
}
