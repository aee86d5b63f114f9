package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/port"
)

// sndbuf is the send buffer of a socket in bytes: room for the frames in the transmit queue of an interface.
const sndbuf = 4 << 20

// maxSources is the maximum number of sending sockets per address. More UDP source ports share these sockets.
const maxSources = 256

// hopLimit is the default TTL or hop limit.
const hopLimit = 64

// local is an address of the NIC with its sockets.
type local struct {
	addr netip.Addr
	gid  inet.GID
	rx   int // bound to the RoCEv2 port
	hdr  header
	// drops is the last value of the kernel's counter of datagrams dropped for lack of room.
	drops uint32

	sources  map[uint16]*source // by requested port
	list     []*source
	last     *source // most recently used, for the requested port lastPort
	lastPort uint16
}

// source is a socket that sends from one UDP source port. A second socket holds the port for all addresses: the kernel lets a
// program send from any address of the host, with the port of its socket.
type source struct {
	fd   int
	hold int
	port uint16
	aim  int // index of the interface for multicast, 0 if not set
}

// option is a socket option.
type option struct {
	level, name, value int
	what               string
}

// Options of the sockets, by IPv4. With DF the kernel sends IP ID 0, and refuses packets longer than the path MTU.
var (
	rxOptions = map[bool][]option{
		true: {
			{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "IP_RECVTOS"},
		},
		false: {
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"},
			// RoCEv2 needs no UDP checksum (IBTA annex A17.4.3), but the kernel requires one over IPv6 by default.
			{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "UDP_NO_CHECK6_RX"},
		},
	}
	// PROBE sets DF and ignores the path MTU that ICMP messages tell, as hardware does: an off-path attacker can forge them.
	txOptions = map[bool][]option{
		true: {
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER"},
			{unix.IPPROTO_IP, unix.IP_RECVERR, 1, "IP_RECVERR"},
			{unix.IPPROTO_IP, unix.IP_TTL, hopLimit, "IP_TTL"},
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"},
		},
		false: {
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, "IPV6_MTU_DISCOVER"},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1, "IPV6_RECVERR"},
			{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit, "IPV6_UNICAST_HOPS"},
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"},
		},
	}
	// Sockets that only hold a port. The sockets of one user share a port, those of others do not.
	holdOptions = map[bool][]option{
		true: {
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"},
		},
		false: {
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1, "IPV6_V6ONLY"},
			{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "SO_REUSEPORT"},
			{unix.SOL_SOCKET, unix.SO_RCVBUF, 0, "SO_RCVBUF"},
		},
	}
)

// listen opens the receiving socket of an address or group.
func (p *Port) listen(a netip.Addr, opts []option) (*local, error) {
	l := &local{addr: a, gid: inet.GIDOf(a), rx: -1, sources: map[uint16]*source{}}
	l.hdr.init(p.cfg.MAC, a, p.cfg.UDPPort)
	fd, err := p.socket(a, p.cfg.UDPPort, opts)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("address %v: UDP port %d is taken: by a NIC of the kernel (rdma link show), another roced, or another "+
			"program (ss -ulpn sport = %d)", a, p.cfg.UDPPort, p.cfg.UDPPort)
	}
	if err != nil {
		return nil, fmt.Errorf("address %v, UDP port %d: %w", a, p.cfg.UDPPort, err)
	}
	l.rx = fd
	port.SetBuffers(fd, port.ReceiveBuffer, 0)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	if p.cfg.Offload != OffloadNever { // Linux 5.0
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		port.CloseSocket(&l.rx)
		return nil, fmt.Errorf("address %v: epoll: %w", a, err)
	}
	return l, nil
}

// socket opens a UDP socket that is bound to an address and port.
func (p *Port) socket(a netip.Addr, port uint16, opts []option) (fd int, err error) {
	family := unix.AF_INET
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(port), Addr: v4Bytes(a)}
	if a.Is6() {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: int(port), Addr: a.As16(), ZoneId: p.zone(a)}
	}
	p.thread.Do(func() {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	})
	if err != nil {
		return -1, err
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("%s: %w", o.what, err)
		}
	}
	if err := unix.Bind(fd, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// zone returns the scope ID of an address.
func (p *Port) zone(a netip.Addr) uint32 {
	if a.IsLinkLocalUnicast() || a.Is6() && a.IsMulticast() {
		return uint32(p.index)
	}
	return 0
}

func v4Bytes(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}

// from returns the socket for a UDP source port. The socket has another port if the requested port is in use by another
// process, or if there are too many sockets.
func (p *Port) from(l *local, port uint16) (*source, error) {
	if l.last != nil && l.lastPort == port {
		return l.last, nil
	}
	s := l.sources[port]
	if s == nil {
		var err error
		if s, err = p.newSource(l, port); err != nil {
			return nil, err
		}
		l.sources[port] = s
	}
	l.last, l.lastPort = s, port
	return s, nil
}

func (p *Port) newSource(l *local, wanted uint16) (*source, error) {
	if len(l.list) >= maxSources {
		return l.list[int(wanted)%maxSources], nil
	}
	const tries = 64
	for i := range uint16(tries) {
		// RoCEv2 uses the dynamic ports, from 0xc000 on.
		q := wanted + i | 0xc000
		if i == 0 {
			q = wanted
		}
		s, err := p.openSource(l.addr, q)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		l.list = append(l.list, s)
		return s, nil
	}
	return nil, unix.EADDRINUSE
}

// openSource opens the sockets of a source port.
func (p *Port) openSource(a netip.Addr, q uint16) (s *source, err error) {
	all := netip.IPv4Unspecified()
	if a.Is6() {
		all = netip.IPv6Unspecified()
	}
	s = &source{fd: -1, hold: -1, port: q}
	if s.hold, err = p.socket(all, q, holdOptions[a.Is4()]); err != nil {
		return nil, err
	}
	if s.fd, err = p.socket(a, q, txOptions[a.Is4()]); err != nil {
		s.close()
		return nil, err
	}
	port.SetBuffers(s.fd, 0, sndbuf)
	return s, nil
}

func (s *source) close() {
	port.CloseSocket(&s.fd)
	port.CloseSocket(&s.hold)
}

// Bound reports whether a socket of this host is bound to a UDP port of that address.
func (p *Port) Bound(a netip.Addr, port uint16) bool {
	fd, err := p.socket(a, port, nil)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EADDRINUSE)
}

// close closes all sockets. The kernel removes them from epoll.
func (l *local) close() {
	port.CloseSocket(&l.rx)
	for _, s := range l.list {
		s.close()
	}
	l.list, l.last, l.sources = nil, nil, nil
}

// name is the address of a peer in the format of the kernel (struct sockaddr).
type name [unix.SizeofSockaddrInet6]byte

// set sets n and returns its length.
func (n *name) set(gid *inet.GID, v4 bool, port uint16, zone uint32) uint32 {
	binary.BigEndian.PutUint16(n[2:], port)
	if v4 {
		*(*uint16)(unsafe.Pointer(&n[0])) = unix.AF_INET
		copy(n[4:8], gid[12:])
		clear(n[8:16])
		return unix.SizeofSockaddrInet4
	}
	*(*uint16)(unsafe.Pointer(&n[0])) = unix.AF_INET6
	clear(n[4:8])
	copy(n[8:24], gid[:])
	*(*uint32)(unsafe.Pointer(&n[24])) = zone
	return unix.SizeofSockaddrInet6
}

// port returns the UDP port.
func (n *name) port() uint16 { return binary.BigEndian.Uint16(n[2:]) }

// addr returns the bytes of the IP address.
func (n *name) addr(v4 bool) []byte {
	if v4 {
		return n[4:8]
	}
	return n[8:24]
}
