package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
)

// The guard is a UDP socket on the RoCEv2 port that throws everything away. The kernel
// takes the datagrams on a shared interface for its own, and would tell their senders that
// nobody is there. A socket is better than a firewall rule: it ends with the process,
// however that ends.

// openGuard makes the socket for the interface of this index and all its addresses. That
// somebody else has the port, such as a NIC of the kernel, is as good: -1 then.
//
// Whoever has no privileges may bind a socket to an interface, but not to another
// one later on: each interface needs a socket of its own.
func openGuard(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, guardError(err)
	}
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	prog := unix.SockFprog{Len: 1, Filter: &none}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0), // as small as can be
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
		// Super-frames may come whole, instead of being cut apart only to be dropped.
		unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index),
	)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet6{Port: bth.UDPPort})
	}
	if err == nil {
		return fd, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, nil
	}
	return -1, guardError(err)
}

func guardError(err error) error {
	return fmt.Errorf("the kernel answers RoCE frames with ICMP errors: UDP socket on port %d: %w", bth.UDPPort, err)
}
