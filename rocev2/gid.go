package rocev2

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
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
	ErrVLAN     = errors.New("rocev2: no VLAN that this NIC can be in")
	ErrNoGroups = errors.New("rocev2: no multicast on an interface that is shared with the kernel")
)

// GIDEntry is one entry of the GID table (ibv_gid_entry).
type GIDEntry struct {
	GID   GID
	Index uint8
	Type  uint8
	VLAN  uint16 // in which the address is; 0 for frames without a tag
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

// gidPlaces is how many places the GID table has before one whose address has gone is
// given to another: programs remember indices, and addresses come back.
const gidPlaces = 16

// gidSlot is a place of the GID table.
type gidSlot struct {
	GIDEntry
	live bool // the address is there
}

// addrTable holds the NIC's own addresses and how others are reached.
type addrTable struct {
	gids     []gidSlot
	prefixes []network
	gateways []station
}

// network is a prefix that is on the link, in a VLAN if that is not 0.
type network struct {
	netip.Prefix
	vlan uint16
}

// station is an address in a VLAN, or in none if that is 0.
type station struct {
	addr GID
	vlan uint16
}

// addrRank orders new addresses in the GID table, the same way on every port: IPv4 first,
// then IPv6, link-local ones last. Programs that choose no GID take index 0, and that
// should be an address which routers know. (Linux has a link-local address there, which
// is of use on one link only.)
func addrRank(p netip.Prefix) int {
	switch a := p.Addr(); {
	case a.Is4():
		return 0
	case a.IsLinkLocalUnicast():
		return 2
	}
	return 1
}

// from returns the table of the addresses in cfg, in which addresses that were in t
// keep their places. A NIC of its own has its link-local address as well.
func (t addrTable) from(cfg *Config) (addrTable, error) {
	t = addrTable{gids: append([]gidSlot(nil), t.gids...)}
	for i := range t.gids {
		t.gids[i].live = false
	}
	addrs := slices.Clone(cfg.Addrs)
	if !cfg.Shared {
		addrs = append(addrs, netip.PrefixFrom(linkLocal(cfg.MAC).Addr(), 64))
	}
	if err := t.addAll(cfg, addrs, 0); err != nil {
		return t, err
	}
	for _, v := range cfg.VLANs {
		if v.ID == 0 || v.ID > MaxVLAN || cfg.Shared {
			return t, fmt.Errorf("%w: %d", ErrVLAN, v.ID)
		}
		if err := t.addAll(cfg, slices.Clone(v.Addrs), v.ID); err != nil {
			return t, err
		}
	}
	if cfg.Shared {
		t.prefixes = nil
		for _, p := range cfg.Routes {
			t.prefixes = append(t.prefixes, network{Prefix: p})
		}
	}
	for _, g := range cfg.Gateways {
		if !stationAddr(g.Unmap()) {
			return t, fmt.Errorf("%w: gateway %v", ErrAddress, g)
		}
		t.gateways = append(t.gateways, station{GIDOf(g), t.vlanOf(g.Unmap())})
	}
	return t, nil
}

// addAll gives addresses in a VLAN their places.
func (t *addrTable) addAll(cfg *Config, addrs []netip.Prefix, vlan uint16) error {
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return addrRank(a) - addrRank(b) })
	for _, p := range addrs {
		if a := p.Addr().Unmap(); !p.IsValid() || p.Addr().Is4In6() || !cfg.stationAddr(a) || !t.add(GIDOf(p.Addr()), vlan) {
			return fmt.Errorf("%w: %v", ErrAddress, p)
		}
		t.prefixes = append(t.prefixes, network{p.Masked(), vlan})
	}
	return nil
}

// vlanOf returns the VLAN in which an address is on the link.
func (t *addrTable) vlanOf(a netip.Addr) uint16 {
	for _, p := range t.prefixes {
		if p.Contains(a) {
			return p.vlan
		}
	}
	return 0
}

// add gives g a place: the one that it had, a new one, or one that is free. It reports
// whether there was one. An address is in one VLAN only: peers and rdma_cm name it without.
func (t *addrTable) add(g GID, vlan uint16) bool {
	free := -1
	for i := range t.gids {
		if t.gids[i].GID == g {
			again := t.gids[i].live && t.gids[i].VLAN != vlan
			t.gids[i].live, t.gids[i].VLAN = true, vlan
			return !again
		}
		if free < 0 && !t.gids[i].live {
			free = i
		}
	}
	if free < 0 || len(t.gids) < gidPlaces {
		if len(t.gids) == maxAddrs {
			return false
		}
		free = len(t.gids)
		t.gids = append(t.gids, gidSlot{})
	}
	t.gids[free] = gidSlot{GIDEntry{GID: g, Index: uint8(free), Type: GIDTypeRoCEv2, VLAN: vlan}, true}
	return true
}

// live yields the entries of the GID table.
func (t *addrTable) live(yield func(*GIDEntry) bool) {
	for i := range t.gids {
		if g := &t.gids[i]; g.live && !yield(&g.GIDEntry) {
			return
		}
	}
}

// at returns the entry of an index, nil if there is none.
func (t *addrTable) at(index uint8) *GIDEntry {
	if int(index) >= len(t.gids) || !t.gids[index].live {
		return nil
	}
	return &t.gids[index].GIDEntry
}

// stationAddr reports whether a can be the address of one station on a link.
func stationAddr(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// own reports whether g is one of the NIC's addresses in a VLAN.
func (t *addrTable) own(g *GID, vlan uint16) bool {
	for i := range t.gids { // for every packet, so without an iterator
		if t.gids[i].GID == *g && t.gids[i].VLAN == vlan && t.gids[i].live {
			return true
		}
	}
	return false
}

// inVLAN reports whether one of the NIC's addresses is in a VLAN.
func (t *addrTable) inVLAN(vlan uint16) bool {
	for i := range t.gids {
		if t.gids[i].VLAN == vlan && t.gids[i].live {
			return true
		}
	}
	return false
}

// nextHop returns the station to which packets for g go from an address in a VLAN: g itself when it is on
// the link there, else the gateway of its family.
func (t *addrTable) nextHop(g GID, vlan uint16) (station, bool) {
	a := g.Addr()
	for _, p := range t.prefixes {
		if p.vlan == vlan && p.Contains(a) {
			return station{g, vlan}, true
		}
	}
	for _, gw := range t.gateways {
		if gw.vlan == vlan && gw.addr.is4() == g.is4() {
			return gw, true
		}
	}
	return station{}, false
}

// GIDs returns the GID table. A place whose address has gone holds the zero GID.
func (n *NIC) GIDs() []GIDEntry {
	out := make([]GIDEntry, len(n.net.addrs.gids))
	for i := range out {
		out[i] = GIDEntry{Index: uint8(i), Type: GIDTypeRoCEv2}
	}
	for e := range n.net.addrs.live {
		out[e.Index] = *e
	}
	return out
}

// SetAddrs replaces the NIC's addresses and gateways and announces the new ones.
// Paths that exist keep their source address and next hop.
func (n *NIC) SetAddrs(now mono.Time, addrs []netip.Prefix, gateways []netip.Addr) error {
	cfg := n.cfg
	cfg.Addrs = append([]netip.Prefix(nil), addrs...)
	cfg.Gateways = append([]netip.Addr(nil), gateways...)
	t, err := n.net.addrs.from(&cfg)
	if err != nil {
		return err
	}
	n.net.addrs, n.cfg = t, cfg
	n.announce()
	n.portEvent(qp.EventGIDChange)
	return nil
}
