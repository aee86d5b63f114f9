package inet

import "net/netip"

// GID is a RoCEv2 GID: an IPv6 address or an IPv4-mapped one (IBTA annex A17.3).
type GID [16]byte

// GIDOf returns the GID of an address, IPv4-mapped for an IPv4 address (IBTA annex A17.4.2).
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address of g, IPv4 for an IPv4-mapped one.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// Is4 reports whether g is IPv4-mapped, ::ffff:a.b.c.d.
func (g *GID) Is4() bool {
	return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

// Multicast reports whether g is a multicast address.
func (g *GID) Multicast() bool { return g[0] == 0xff || g.Is4() && g[12]>>4 == 0xe }

// GIDOf4 returns the GID of the four bytes of an IPv4 address.
func GIDOf4(b []byte) GID {
	return GID{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}
