package host

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxAddrs bounds the addresses that are followed, and maxRoutes the routes: of more
// routes only their families are told, as default routes, and the kernel knows the rest.
const (
	maxAddrs  = 128
	maxRoutes = 1024
)

// load reads everything.
func (f *Follower) load() error {
	if err := f.loadState(); err != nil {
		return err
	}
	return f.loadNeighbours()
}

// loadState reads link, addresses and routes. Of an interface that does not exist, MAC and
// MTU stay what they were.
func (f *Follower) loadState() error {
	s := State{MAC: f.state.MAC, MTU: f.state.MTU}
	l, err := f.handle.LinkByName(f.cfg.Interface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		f.state = s
		return nil
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", f.cfg.Interface, err)
	}
	a := l.Attrs()
	if a.EncapType != "ether" || len(a.HardwareAddr) != len(s.MAC) {
		return fmt.Errorf("interface %s is not an Ethernet interface", f.cfg.Interface)
	}
	s.Index, s.MAC, s.MTU = a.Index, Station(a.HardwareAddr), a.MTU
	s.Up = a.RawFlags&(unix.IFF_UP|unix.IFF_LOWER_UP) == unix.IFF_UP|unix.IFF_LOWER_UP
	if s.Addrs, err = f.addresses(l); err != nil {
		return fmt.Errorf("addresses of %s: %w", f.cfg.Interface, err)
	}
	if s.Routes, err = f.routes(s.Index); err != nil {
		return fmt.Errorf("routes over %s: %w", f.cfg.Interface, err)
	}
	f.state = s
	return nil
}

// addresses returns the addresses that can be used: IPv4 first, link-local IPv6 last.
func (f *Follower) addresses(l netlink.Link) (out []netip.Prefix, err error) {
	list, err := f.handle.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for i := range list {
		a := &list[i]
		p, ok := prefixOf(a.IPNet)
		if !ok || a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0 {
			continue
		}
		if ip := p.Addr(); ip.IsLoopback() || ip.IsMulticast() || ip.IsUnspecified() {
			continue
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b netip.Prefix) int { return cmp.Compare(addrRank(a.Addr()), addrRank(b.Addr())) })
	return out[:min(len(out), maxAddrs)], nil
}

func addrRank(a netip.Addr) int {
	switch {
	case a.Is4():
		return 0
	case !a.IsLinkLocalUnicast():
		return 1
	}
	return 2
}

// prefixOf converts an address with its mask; ok is false for what is none.
func prefixOf(n *net.IPNet) (p netip.Prefix, ok bool) {
	if n == nil {
		return p, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return p, false
	}
	a = a.Unmap()
	if a.Is4() && bits == 128 {
		ones -= 96
	}
	p = netip.PrefixFrom(a, ones)
	return p, p.IsValid()
}

// routes returns the destinations of the unicast routes over an interface, of all tables
// that could be asked.
func (f *Follower) routes(index int) (out []netip.Prefix, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := f.handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if p, ok := destination(&all[i], family); ok && leadsOver(&all[i], index) {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	if out = slices.Compact(out); len(out) > maxRoutes {
		out = []netip.Prefix{netip.PrefixFrom(unspecified(true), 0), netip.PrefixFrom(unspecified(false), 0)}
	}
	return out, nil
}

// unspecified is the address of a family that means none, or any.
func unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// destination returns that of a unicast route.
func destination(r *netlink.Route, family int) (p netip.Prefix, ok bool) {
	if r.Type != unix.RTN_UNICAST || r.Table == unix.RT_TABLE_LOCAL {
		return p, false
	}
	if r.Dst == nil {
		return netip.PrefixFrom(unspecified(family == netlink.FAMILY_V4), 0), true
	}
	return prefixOf(r.Dst)
}

func leadsOver(r *netlink.Route, index int) bool {
	return r.LinkIndex == index || slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return n.LinkIndex == index })
}
