package host

import (
	"context"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen opens a TCP listener. An address without a host means all addresses of IPv4 and IPv6. net.Listen would leave out
// IPv6 where the loopback interface has no IPv4 address.
func Listen(address string) (net.Listener, error) {
	if name, _, err := net.SplitHostPort(address); err == nil && name == "" {
		both := net.ListenConfig{Control: acceptIPv4}
		if ln, err := both.Listen(context.Background(), "tcp6", address); !errors.Is(err, unix.EAFNOSUPPORT) {
			return ln, err
		}
	}
	return net.Listen("tcp", address)
}

// acceptIPv4 makes a socket of IPv6 accept connections of IPv4.
func acceptIPv4(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0) })
	return errors.Join(failed, err)
}
