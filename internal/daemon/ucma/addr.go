package ucma

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

var (
	native = binary.NativeEndian
	be     = binary.BigEndian
)

// afIB is AF_IB, the family of sockaddr_ib.
const afIB = 27

// Lengths of the socket addresses, in bytes.
const (
	lenIn  = 16
	lenIn6 = 28
	lenIB  = 48
)

// endpoint is a socket address. Of AF_IB, only unspecified addresses to bind to are supported: programs use them to
// detect the family.
type endpoint struct {
	family uint16 // 0: none
	netip.AddrPort
}

// any reports whether e has no specific address.
func (e endpoint) any() bool { return !e.Addr().IsValid() || e.Addr().IsUnspecified() }

// localhost is the IPv4 address by which programs mean their own NIC.
var localhost = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// alias reports whether e is a loopback address other than own, the address of the NIC that e stands for.
func (e endpoint) alias(own netip.Addr) bool { return e.Addr().IsLoopback() && e.Addr() != own }

// means reports whether e, a destination, stands for the NIC with the address own: e is unspecified or a loopback address.
// If own is in 127.0.0.0/8 too, other addresses of that network belong to other NICs.
func (e endpoint) means(own netip.Addr) bool {
	return e.any() || e.Addr().IsLoopback() && (!own.IsLoopback() || e.Addr() == localhost)
}

// withPort returns e with the given port.
func (e endpoint) withPort(port uint16) endpoint {
	e.AddrPort = netip.AddrPortFrom(e.Addr(), port)
	return e
}

// endpointOf returns the endpoint of an address.
func endpointOf(a netip.Addr, port uint16) endpoint {
	family := uint16(unix.AF_INET6)
	if a.Is4() {
		family = unix.AF_INET
	}
	return endpoint{family, netip.AddrPortFrom(a, port)}
}

// parseSockaddr parses a socket address.
func parseSockaddr(b []byte) (endpoint, error) {
	if len(b) < 2 {
		return endpoint{}, unix.EINVAL
	}
	switch family := native.Uint16(b); {
	case family == unix.AF_INET && len(b) >= lenIn:
		return endpointOf(netip.AddrFrom4([4]byte(b[4:8])), be.Uint16(b[2:])), nil
	case family == unix.AF_INET6 && len(b) >= lenIn6:
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if a.Is4In6() {
			return endpoint{}, unix.EADDRNOTAVAIL
		}
		return endpointOf(a, be.Uint16(b[2:])), nil
	case family == afIB && len(b) >= lenIB:
		if [16]byte(b[8:24]) != [16]byte{} {
			return endpoint{}, unix.EADDRNOTAVAIL
		}
		return endpoint{afIB, netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(be.Uint64(b[24:])))}, nil
	case family == unix.AF_INET, family == unix.AF_INET6, family == afIB:
		return endpoint{}, unix.EINVAL
	}
	return endpoint{}, unix.EAFNOSUPPORT
}

// putSockaddr writes e into b and returns its length.
func (e endpoint) putSockaddr(b []byte) uint16 {
	native.PutUint16(b, e.family)
	switch e.family {
	case unix.AF_INET:
		be.PutUint16(b[2:], e.Port())
		a := e.Addr().As4()
		copy(b[4:], a[:])
		return lenIn
	case unix.AF_INET6:
		be.PutUint16(b[2:], e.Port())
		a := e.Addr().As16()
		copy(b[8:], a[:])
		return lenIn6
	case afIB:
		be.PutUint64(b[24:], uint64(e.Port()))
		return lenIB
	}
	return 0
}

// putSockaddrIB writes the sockaddr_ib of a GID and a service ID.
func putSockaddrIB(b []byte, pkey uint16, gid [16]byte, sid uint64) uint16 {
	native.PutUint16(b, afIB)
	be.PutUint16(b[2:], pkey)
	copy(b[8:], gid[:])
	be.PutUint64(b[24:], sid)
	be.PutUint64(b[32:], ^uint64(0))
	return lenIB
}
