package port

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/netns"
)

// Groups are the multicast groups that the kernel has joined for a NIC on a shared interface. The kernel reports the
// memberships to the network and makes the interface accept frames to the groups. Linux limits the memberships of a
// socket, so each group has its own socket, which is not bound and receives nothing. Joining needs no privilege.
type Groups struct {
	thread *netns.Thread // in the interface's namespace
	index  int           // of the interface, 0 if there is none
	socks  map[netip.Addr]int
}

// notJoined replaces the socket of a group while there is no interface.
const notJoined = -1

// NewGroups returns an empty list. Move sets the interface, in the namespace of the thread.
func NewGroups(t *netns.Thread) *Groups { return &Groups{thread: t, socks: map[netip.Addr]int{}} }

// Set joins or leaves a group. Leaving cannot fail.
func (g *Groups) Set(a netip.Addr, in bool) error {
	if fd, ok := g.socks[a]; ok {
		CloseSocket(&fd)
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

// Update joins or leaves a group, and calls apply, which updates the filter of the port. If apply fails, Update
// leaves the group again.
func (g *Groups) Update(a netip.Addr, in bool, apply func() error) error {
	err := g.Set(a, in)
	if err == nil {
		err = apply()
	}
	if err != nil && in {
		_ = g.Set(a, false)
	}
	return err
}

// Move joins all groups on another interface. Index 0 joins none. A group that cannot be joined stays in the list.
func (g *Groups) Move(index int) (err error) {
	g.index = index
	for a, fd := range g.socks {
		CloseSocket(&fd)
		fd, joinErr := g.join(a)
		g.socks[a], err = fd, errors.Join(err, joinErr)
	}
	return err
}

func (g *Groups) join(a netip.Addr) (fd int, err error) {
	if g.index == 0 {
		return notJoined, nil
	}
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	g.thread.Do(func() { fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) })
	if err == nil {
		if err = JoinGroup(fd, a, g.index); err == nil {
			return fd, nil
		}
		unix.Close(fd)
	}
	return notJoined, fmt.Errorf("multicast group %v: %w", a, err)
}

// Behind returns addrs followed by the groups.
func (g *Groups) Behind(addrs []netip.Addr) []netip.Addr {
	all := slices.Clone(addrs)
	for a := range g.socks {
		all = append(all, a)
	}
	return all
}

// Close leaves all groups.
func (g *Groups) Close() {
	for a := range g.socks {
		_ = g.Set(a, false)
	}
}
