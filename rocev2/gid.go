package rocev2

import (
	"errors"
	"fmt"
	"net/netip"

	"roced/mono"
	"roced/qp"
)

// GIDTypeRoCEv2 is the type of every GID of this NIC, numbered as ibv_gid_type_sysfs.
const GIDTypeRoCEv2 = 2

// Errors of addresses.
var (
	ErrGIDIndex = errors.New("rocev2: no GID at this index")
	ErrFamily   = errors.New("rocev2: source and destination GID are of different families")
	ErrNoRoute  = errors.New("rocev2: no route to the destination")
	ErrBadGID   = errors.New("rocev2: not the address of one station")
	ErrAddress  = errors.New("rocev2: unusable address")
)

// GIDEntry is one entry of the GID table (ibv_gid_entry).
type GIDEntry struct {
	GID   GID
	Index uint8
	Type  uint8
}

// GIDOf returns the GID of an address; that of an IPv4 address is IPv4-mapped
// (IBTA annex A17.4.2).
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address of g, IPv4 for an IPv4-mapped one.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// is4 reports whether g is IPv4-mapped, ::ffff:a.b.c.d.
func (g *GID) is4() bool {
	return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

// gidOf4 returns the GID of the four bytes of an IPv4 address.
func gidOf4(b []byte) GID {
	return GID{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

// linkLocal returns the link-local address of m, fe80:: and its modified EUI-64
// (RFC 4291 2.5.1 and appendix A).
func linkLocal(m MAC) GID {
	return GID{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]}
}

// maxAddrs is what the index of an address vector, a byte, can name.
const maxAddrs = 256

// addrTable holds the NIC's own addresses and how others are reached.
type addrTable struct {
	gids     []GIDEntry
	prefixes []netip.Prefix
	gw4, gw6 GID // zero: none
}

// makeAddrTable builds the table: GID 0 is the link-local address, then addrs in
// their order.
func makeAddrTable(mac MAC, addrs []netip.Prefix, gateways []netip.Addr) (addrTable, error) {
	var t addrTable
	t.add(linkLocal(mac))
	t.prefixes = append(t.prefixes, netip.PrefixFrom(linkLocal(mac).Addr(), 64).Masked())
	for _, p := range addrs {
		if a := p.Addr().Unmap(); !p.IsValid() || p.Addr().Is4In6() || !stationAddr(a) || len(t.gids) == maxAddrs {
			return t, fmt.Errorf("%w: %v", ErrAddress, p)
		}
		t.add(GIDOf(p.Addr()))
		t.prefixes = append(t.prefixes, p.Masked())
	}
	for _, g := range gateways {
		switch {
		case !stationAddr(g.Unmap()):
			return t, fmt.Errorf("%w: gateway %v", ErrAddress, g)
		case g.Unmap().Is4():
			t.gw4 = GIDOf(g)
		default:
			t.gw6 = GIDOf(g)
		}
	}
	return t, nil
}

func (t *addrTable) add(g GID) {
	if !t.own(&g) {
		t.gids = append(t.gids, GIDEntry{GID: g, Index: uint8(len(t.gids)), Type: GIDTypeRoCEv2})
	}
}

// stationAddr reports whether a can be the address of one station on a link.
func stationAddr(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// own reports whether g is one of the NIC's addresses.
func (t *addrTable) own(g *GID) bool {
	for i := range t.gids {
		if t.gids[i].GID == *g {
			return true
		}
	}
	return false
}

// nextHop returns the station to which packets for g go: g itself when it is on
// the link, else the gateway of its family.
func (t *addrTable) nextHop(g GID) (GID, bool) {
	a := g.Addr()
	for _, p := range t.prefixes {
		if p.Contains(a) {
			return g, true
		}
	}
	gw := t.gw6
	if g.is4() {
		gw = t.gw4
	}
	return gw, gw != GID{}
}

// GIDs returns the GID table.
func (n *NIC) GIDs() []GIDEntry { return append([]GIDEntry(nil), n.net.addrs.gids...) }

// SetAddrs replaces the NIC's addresses and gateways and announces the new ones.
// Paths that exist keep their source address and next hop.
func (n *NIC) SetAddrs(now mono.Time, addrs []netip.Prefix, gateways []netip.Addr) error {
	t, err := makeAddrTable(n.cfg.MAC, addrs, gateways)
	if err != nil {
		return err
	}
	n.net.addrs = t
	n.cfg.Addrs = append([]netip.Prefix(nil), addrs...)
	n.cfg.Gateways = append([]netip.Addr(nil), gateways...)
	n.announce()
	n.portEvent(qp.EventGIDChange)
	return nil
}
