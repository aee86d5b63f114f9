package packet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// openGuard opens a UDP socket on the port of RoCEv2 that drops everything, for all addresses of the interface with this
// index. Without it the kernel answers RoCE datagrams on a shared interface with "port unreachable". In contrast to a
// firewall rule, the socket always ends with the process.
//
// openGuard returns -1 if another socket, such as that of a NIC of the kernel, has the port: that one serves as well.
//
// An unprivileged process may bind a socket to an interface only once, so each interface needs a new socket.
func openGuard(index int, port uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, guardError(port, err)
	}
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	prog := unix.SockFprog{Len: 1, Filter: &none}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0), // the minimum
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0),
		// With GRO the kernel drops a super-frame whole instead of segmenting it first.
		unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index),
	)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)})
	}
	if err == nil {
		return fd, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, nil
	}
	return -1, guardError(port, err)
}

func guardError(port uint16, err error) error {
	return fmt.Errorf("the kernel answers RoCE frames with ICMP errors: UDP socket on port %d: %w", port, err)
}
