package ucma

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

func (c *device) resolveIP(q *request, r *rdmacm.ResolveIP) error {
	return c.resolve(r.ID, r.TimeoutMS, r.SrcAddr[:], r.DstAddr[:])
}

func (c *device) resolveAddr(q *request, r *rdmacm.ResolveAddr) error {
	if int(r.SrcSize) > len(r.SrcAddr) || int(r.DstSize) > len(r.DstAddr) {
		return unix.EINVAL
	}
	return c.resolve(r.ID, r.TimeoutMS, r.SrcAddr[:r.SrcSize], r.DstAddr[:r.DstSize])
}

// maxResolve is the maximum timeout of a program.
const maxResolve = 5 * time.Minute

// resolve starts address resolution for dst. ADDR_RESOLVED or ADDR_ERROR follows.
func (c *device) resolve(num, ms uint32, srcaddr, dstaddr []byte) error {
	i, err := c.find(num)
	if err != nil {
		return err
	}
	dst, err := parseSockaddr(dstaddr)
	if err != nil {
		return err
	}
	if dst.family == afIB {
		return unix.EADDRNOTAVAIL
	}
	src := endpoint{family: dst.family, AddrPort: netip.AddrPortFrom(unspecified(dst), 0)}
	if len(srcaddr) >= 2 && native.Uint16(srcaddr) != 0 {
		if src, err = parseSockaddr(srcaddr); err != nil {
			return err
		}
	}
	if i.state == stateIdle {
		if err := i.bind(src); err != nil {
			return err
		}
	}
	if i.state != stateBound || i.src.family != dst.family {
		return unix.EINVAL
	}
	n, sgid, err := i.wayTo(&dst)
	if err != nil {
		return err
	}
	if dst.Addr().IsMulticast() { // a group has no neighbour to resolve
		i.resolved(n, sgid, dst, nil)
		return nil
	}
	return i.ask(n, sgid, dst, min(time.Duration(ms)*time.Millisecond, maxResolve))
}

func unspecified(e endpoint) netip.Addr {
	if e.family == unix.AF_INET {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// wayTo chooses the NIC and the source GID for packets to dst: those of i if it is bound, else the best ones of the
// context. Unspecified and loopback addresses stand for our own address. A loopback address does not reach other
// hosts, but other NICs on loopback addresses. Groups use the first NIC that has an address of their family. Without a
// bound address the best NIC is the one that has dst, as in Linux (rdma_set_src_addr_rcu of drivers/infiniband).
func (i *id) wayTo(dst *endpoint) (best *nic, sgid rocev2.GIDEntry, err error) {
	if i.nic != nil {
		own := i.route.SGID.Addr()
		if dst.means(own) {
			*dst = endpointOf(own, dst.Port())
		}
		if i.src.alias(own) && dst.Addr() != own {
			return nil, sgid, unix.ENETUNREACH
		}
		return i.nic, rocev2.GIDEntry{GID: i.route.SGID, Index: i.sgid}, nil
	}
	bits := rocev2.RouteBits(-1)
	for _, n := range i.ctx.nics {
		err := n.look(func(core *rocev2.NIC) error {
			to := inet.GIDOf(dst.Addr())
			if first := firstOf(core, dst.Addr().Is4()); dst.means(first.Addr()) || dst.Addr().IsMulticast() {
				to = first
			}
			if e, b, ok := core.Source(to); ok && b > bits {
				best, sgid, bits = n, e, b
			}
			return nil
		})
		if err != nil {
			return nil, sgid, err
		}
	}
	if best == nil {
		return nil, sgid, unix.ENETUNREACH
	}
	if own := sgid.GID.Addr(); dst.means(own) {
		*dst = endpointOf(own, dst.Port())
	}
	return best, sgid, nil
}

// firstOf returns the first address of the NIC that has the family and is not link-local.
func firstOf(core *rocev2.NIC, v4 bool) inet.GID {
	for _, g := range core.GIDs() {
		if a := g.GID.Addr(); a.Is4() == v4 && !a.IsLinkLocalUnicast() && !a.IsUnspecified() {
			return g.GID
		}
	}
	return inet.GID{}
}

// ask makes the NIC resolve the next hop to dst.
func (i *id) ask(n *nic, sgid rocev2.GIDEntry, dst endpoint, limit time.Duration) error {
	s := i.ctx.srv
	i.endQuery()
	serial := i.serial
	answer := func(err error) func() {
		return func() {
			if i.serial == serial {
				i.resolved(n, sgid, dst, err)
			}
		}
	}
	asking, known := true, func() {}
	err := n.do(func(now mono.Time, core *rocev2.NIC) error {
		defer func() { asking = false }()
		return core.ResolveNeighbour(now, inet.GIDOf(dst.Addr()), sgid.Index, server.HolderOf(i.ctx.cred.Uid), func(_ mono.Time, err error) {
			if asking { // synchronous answer: the neighbour is known, the common case
				known = answer(err)
				return
			}
			s.post(answer(err))
		})
	})
	if err != nil {
		return err
	}
	i.state = stateAddrQuery
	if known(); i.state != stateAddrQuery {
		return nil
	}
	i.timer = time.AfterFunc(limit, func() { s.post(answer(unix.ETIMEDOUT)) })
	return nil
}

// resolved ends address resolution with a result.
func (i *id) resolved(n *nic, sgid rocev2.GIDEntry, dst endpoint, err error) {
	i.endQuery()
	if err != nil {
		i.state, i.then = stateBound, nil
		errno := unix.EHOSTUNREACH
		errors.As(err, &errno)
		i.emit(rdmacm.EventAddrError, -int32(errno))
		return
	}
	i.state = stateAddrResolved
	i.nic, i.sgid, i.dst = n, sgid.Index, dst
	i.src = endpointOf(sgid.GID.Addr(), i.src.Port())
	i.route = rocev2.MADRoute{SGID: sgid.GID, DGID: inet.GIDOf(dst.Addr())}
	if i.then != nil {
		i.proceed()
		return
	}
	i.emit(rdmacm.EventAddrResolved, 0)
}

// flowLabel returns the flow label that Linux derives from the ports.
func (i *id) flowLabel() uint32 {
	return (uint32(i.src.Port())*31 + uint32(i.dst.Port())) & 0xfffff
}

// hopLimit is the default of Linux.
const hopLimit = 64

// resolveRoute completes the path; ROUTE_RESOLVED follows. RoCE has no subnet manager, so all path data are local.
func (i *id) resolveRoute(q *request, r *rdmacm.ResolveRoute) error {
	if i.state != stateAddrResolved {
		return unix.EINVAL
	}
	if err := i.routed(); err != nil {
		return err
	}
	i.emit(rdmacm.EventRouteResolved, 0)
	return nil
}

// routed completes the path.
func (i *id) routed() error {
	err := i.nic.look(func(core *rocev2.NIC) error {
		i.mtu = core.PortAttr().ActiveMTU
		return nil
	})
	if err != nil {
		return err
	}
	i.route.TrafficClass, i.route.HopLimit, i.route.FlowLabel = i.tos, hopLimit, i.flowLabel()
	i.state = stateRouteResolved
	return nil
}
