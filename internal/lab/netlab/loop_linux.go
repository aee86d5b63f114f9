package netlab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/namespace"
)

// loop is the loopback network of a lab: addresses base, base+1 ...
type loop struct {
	ns   *namespace.Namespace // nil means that of this process
	base netip.Addr
}

// newLoop makes a namespace. A process without the privilege uses addresses of its own namespace that no RoCE socket uses.
func newLoop() (*loop, error) {
	ns, err := namespace.New()
	if err != nil {
		base, err := freeAddresses()
		return &loop{base: base}, err
	}
	if err := ns.Do(func() error { return namespace.SetUp("lo") }); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return &loop{ns: ns, base: netip.AddrFrom4([4]byte{127, 0, 0, 2})}, nil
}

// close releases the namespace.
func (l *loop) close() error {
	if l.ns == nil {
		return nil
	}
	return l.ns.Close()
}

// address returns the address of the NIC with this number.
func (l *loop) address(n int) netip.Addr {
	a := l.base
	for range n {
		a = a.Next()
	}
	return a
}

// freeAddresses selects 127.x.y.2 at random: another process that selects at the same time takes other ones.
func freeAddresses() (base netip.Addr, err error) {
	for range 16 {
		base = netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 2})
		var c *net.UDPConn
		if c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(base, bth.UDPPort))); err == nil {
			return base, c.Close()
		}
	}
	return base, fmt.Errorf("no free loopback address for a lab: %w", err)
}
