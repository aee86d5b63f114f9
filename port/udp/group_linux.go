package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/port"
)

// groupOptions are the options of the socket of a multicast group. Each group has its own socket, which is bound to the
// address of the group and has joined it. Several NICs of a machine may be in a group, so the kernel returns each sent
// datagram to all of them. A port drops its own datagrams, because the NIC delivers them to its queue pairs itself.
var groupOptions = map[bool][]option{
	true: append([]option{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
		{unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, "IP_MULTICAST_ALL"},
	}, rxOptions[true]...),
	false: append([]option{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1, "SO_REUSEADDR"},
		{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0, "IPV6_MULTICAST_ALL"},
	}, rxOptions[false]...),
}

// Group joins or leaves a multicast group.
func (p *Port) Group(gid inet.GID, in bool) error {
	a := gid.Addr()
	p.wanted = slices.DeleteFunc(p.wanted, func(w netip.Addr) bool { return w == a })
	if !in {
		p.groups = slices.DeleteFunc(p.groups, func(l *local) bool {
			if l.addr == a {
				p.drop(l)
			}
			return l.addr == a
		})
		return nil
	}
	l, err := p.join(a)
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	p.wanted, p.groups = append(p.wanted, a), append(p.groups, l)
	return nil
}

// join opens the socket of a group.
func (p *Port) join(a netip.Addr) (*local, error) {
	l, err := p.listen(a, groupOptions[a.Is4()])
	if err != nil {
		return nil, err
	}
	if err := port.JoinGroup(l.rx, a, p.index); err != nil {
		l.close()
		return nil, fmt.Errorf("group %v: %w", a, err)
	}
	return l, nil
}

// joinMissing joins the wanted groups that the port is not in, after a change of the interface.
func (p *Port) joinMissing() (err error) {
	for _, a := range p.wanted {
		if slices.ContainsFunc(p.groups, func(l *local) bool { return l.addr == a }) {
			continue
		}
		l, jerr := p.join(a)
		if jerr != nil {
			err = errors.Join(err, jerr)
			continue
		}
		p.groups = append(p.groups, l)
	}
	return err
}

// leaveAll leaves all groups. The next bind joins the wanted groups again.
func (p *Port) leaveAll() {
	for _, l := range p.groups {
		p.drop(l)
	}
	p.groups = p.groups[:0]
	if len(p.wanted) > 0 {
		p.Next = 0
	}
}

// aim sets the interface of a socket for multicast.
func (p *Port) aim(s *source, l *local) (err error) {
	if s.aim == p.index {
		return nil
	}
	if l.addr.Is4() {
		err = unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Address: l.addr.As4(), Ifindex: int32(p.index)})
	} else {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, p.index)
	}
	if err == nil {
		s.aim = p.index
	}
	return err
}

// fromItself reports whether the source of a received frame is an address of this port: a multicast frame that the port has sent,
// or one that another user has forged, because NICs do not send to themselves by the port.
func (p *Port) fromItself(frame []byte) bool {
	ip := frame[ethLen:]
	src := ip[8:24]
	if p.hot.hdr.v4 {
		src = ip[12:16]
	}
	for _, l := range p.locals {
		if l.hdr.v4 == p.hot.hdr.v4 && string(l.gid[16-len(src):]) == string(src) {
			return true
		}
	}
	return false
}
