package tap

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Groups are the multicast groups in which the kernel is for a NIC that shares an interface with it: the kernel reports
// them, and has the interface take their frames. It bounds the groups of a socket, so each has a socket of its own, which
// is bound to no port and receives nothing. To join takes no privilege.
type Groups struct {
	inside *Inside // the interface's namespace
	index  int     // of the interface, 0 if there is none
	socks  map[netip.Addr]int
}

// notJoined stands for the socket of a group that is to be joined when there is an interface.
const notJoined = -1

// NewGroups makes an empty list for an interface of the namespace, that Move names.
func NewGroups(inside *Inside) *Groups { return &Groups{inside: inside, socks: map[netip.Addr]int{}} }

// Set joins a group or leaves it.
func (g *Groups) Set(a netip.Addr, in bool) error {
	if fd, ok := g.socks[a]; ok {
		closeSocket(&fd)
		delete(g.socks, a)
	}
	if !in {
		return nil
	}
	fd, err := g.join(a)
	if err == nil {
		g.socks[a] = fd
	}
	return err
}

// Move joins the groups on another interface. One that cannot be joined there stays in the list.
func (g *Groups) Move(index int) (err error) {
	g.index = index
	for a, fd := range g.socks {
		closeSocket(&fd)
		fd, jerr := g.join(a)
		g.socks[a], err = fd, errors.Join(err, jerr)
	}
	return err
}

func (g *Groups) join(a netip.Addr) (fd int, err error) {
	if g.index == 0 {
		return notJoined, nil
	}
	g.inside.Do(func() { fd, err = joinGroup(a, g.index) })
	if err != nil {
		return notJoined, fmt.Errorf("multicast group %v: %w", a, err)
	}
	return fd, nil
}

// joinGroup makes a socket that is in a group on an interface.
func joinGroup(a netip.Addr, index int) (fd int, err error) {
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return notJoined, err
	}
	if a.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: a.As4(), Ifindex: int32(index)})
	} else {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: a.As16(), Interface: uint32(index)})
	}
	if err != nil {
		unix.Close(fd)
		return notJoined, err
	}
	return fd, nil
}

// Behind returns addresses with the groups behind them.
func (g *Groups) Behind(addrs []netip.Addr) []netip.Addr {
	all := slices.Clone(addrs)
	for a := range g.socks {
		all = append(all, a)
	}
	return all
}

// Close leaves all groups.
func (g *Groups) Close() {
	for _, fd := range g.socks {
		closeSocket(&fd)
	}
	clear(g.socks)
}
