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

	"roced.io/roced/bth/inet"
)

// maxAddrs and maxRoutes are the maximum numbers of addresses and routes. If there are more routes, the state has only
// default routes, and the kernel decides.
const (
	maxAddrs  = 128
	maxRoutes = 1024
)

// load reads all tables.
func (f *Follower) load() error {
	if err := f.loadState(); err != nil {
		return err
	}
	return f.loadNeighbours()
}

// loadState reads link, addresses and routes. If the interface does not exist, the state keeps its MAC and MTU.
func (f *Follower) loadState() error {
	s := State{MAC: f.state.MAC, MTU: f.state.MTU}
	l, err := f.link()
	if l == nil && err == nil {
		f.state = s
		return nil
	}
	if err != nil {
		return fmt.Errorf("%v: %w", &f.cfg, err)
	}
	a := l.Attrs()
	s.Index, s.Name, s.MTU = a.Index, a.Name, a.MTU
	switch {
	case a.EncapType == "ether" && len(a.HardwareAddr) == len(s.MAC):
		s.MAC = inet.MAC(a.HardwareAddr)
	case !f.cfg.Routed:
		return fmt.Errorf("%v is not an Ethernet interface", &f.cfg)
	}
	f.discovery = a.EncapType == "ether" && a.RawFlags&unix.IFF_NOARP == 0
	s.Up = a.RawFlags&(unix.IFF_UP|unix.IFF_LOWER_UP) == unix.IFF_UP|unix.IFF_LOWER_UP
	if s.Addrs, err = f.addresses(l); err != nil {
		return fmt.Errorf("addresses of %s: %w", a.Name, err)
	}
	var mtu int
	if s.Routes, mtu, err = f.routes(s.Index); err != nil {
		return fmt.Errorf("routes over %s: %w", a.Name, err)
	}
	if f.cfg.Routed && mtu != 0 {
		s.MTU = min(s.MTU, mtu)
	}
	if f.cfg.Routed { // the kernel decides on the interface
		s.Routes = append(s.Routes, netip.PrefixFrom(unspecified(true), 0), netip.PrefixFrom(unspecified(false), 0))
	}
	f.state = s
	return nil
}

// link returns the interface, nil if it does not exist.
func (f *Follower) link() (l netlink.Link, err error) {
	switch a := f.cfg.Address; {
	case !a.IsValid():
		l, err = f.handle.LinkByName(f.cfg.Interface)
	case a.Is4() && a.IsLoopback(): // all of 127.0.0.0/8 exists, but the table has only one address
		l, err = f.handle.LinkByIndex(loopback)
	default:
		l, err = f.linkOf(a)
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	return l, err
}

// linkOf returns the interface with an address, nil if there is none.
func (f *Follower) linkOf(a netip.Addr) (netlink.Link, error) {
	list, err := f.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(k netlink.Addr) bool {
		p, ok := prefixOf(k.IPNet)
		return ok && p.Addr() == a && usable(&k)
	})
	if i < 0 {
		return nil, nil
	}
	return f.handle.LinkByIndex(list[i].LinkIndex)
}

// loopback is the index of the loopback interface, the first one of each namespace.
const loopback = 1

// usable reports whether an address may be used.
func usable(a *netlink.Addr) bool {
	return a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 || a.Flags&unix.IFA_F_OPTIMISTIC != 0
}

// addresses returns the usable addresses: IPv4 first, link-local IPv6 last.
func (f *Follower) addresses(l netlink.Link) (out []netip.Prefix, err error) {
	only := f.cfg.Address
	if only.Is4() && only.IsLoopback() {
		return []netip.Prefix{netip.PrefixFrom(only, 8)}, nil
	}
	list, err := f.handle.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	for i := range list {
		p, ok := prefixOf(list[i].IPNet)
		if !ok || !usable(&list[i]) || only.IsValid() && p.Addr() != only {
			continue
		}
		if ip := p.Addr(); ip.IsLoopback() && !f.cfg.Routed || ip.IsMulticast() || ip.IsUnspecified() {
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

// prefixOf converts an address with its mask. ok is false if they are invalid.
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

// routes returns the destinations of the unicast routes over an interface, in all tables, and their smallest configured MTU, 0
// if no route has one.
func (f *Follower) routes(index int) (out []netip.Prefix, mtu int, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := f.handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, 0, err
		}
		for i := range all {
			p, ok := destination(&all[i], family)
			if !ok || !leadsOver(&all[i], index) {
				continue
			}
			out = append(out, p)
			if m := all[i].MTU; m != 0 && (mtu == 0 || m < mtu) && configured(&all[i]) {
				mtu = m
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	if out = slices.Compact(out); len(out) > maxRoutes {
		out = []netip.Prefix{netip.PrefixFrom(unspecified(true), 0), netip.PrefixFrom(unspecified(false), 0)}
	}
	return out, mtu, nil
}

// configured reports whether this host has set the route, not a router advertisement or a redirect, which any host of the
// link can forge.
func configured(r *netlink.Route) bool {
	return r.Protocol != unix.RTPROT_RA && r.Protocol != unix.RTPROT_REDIRECT
}

// unspecified returns the unspecified address of a family.
func unspecified(v4 bool) netip.Addr {
	if v4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// destination returns the destination of a unicast route.
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
