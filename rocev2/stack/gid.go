package stack

import (
	"fmt"
	"net/netip"

	"roced.io/roced/bth/inet"

	"slices"
	"strings"
)

// GIDTypeRoCEv2 is the type of every GID of this NIC, numbered as ibv_gid_type_sysfs.
const GIDTypeRoCEv2 = 2

// GIDEntry is one entry of the GID table (ibv_gid_entry).
type GIDEntry struct {
	GID   inet.GID
	Index uint8
	Type  uint8
	VLAN  uint16 // 0: untagged frames
}

// linkLocal returns the link-local address of m, fe80:: and its modified EUI-64 (RFC 4291 2.5.1 and appendix A).
func linkLocal(m inet.MAC) inet.GID {
	return inet.GID{0: 0xfe, 1: 0x80,
		8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]}
}

const (
	// GIDTableLen is the length of the GID table with its empty entries, as ibv_query_port reports it. The index of an
	// address vector is a byte.
	GIDTableLen = 256
	// gidPlaces is the size that the GID table reaches before it reuses the place of a removed address. Programs
	// remember indices, and addresses return.
	gidPlaces = 16
)

// gidSlot is a place of the GID table.
type gidSlot struct {
	GIDEntry
	live bool // the address is present
}

// addrTable holds the NIC's own addresses and its routes.
type addrTable struct {
	pairs    bool // Config.PairedGIDs
	gids     []gidSlot
	prefixes []network
	gateways []Address
}

// network is an on-link prefix, in a VLAN unless that is 0.
type network struct {
	netip.Prefix
	vlan uint16
}

// Address is an address in a VLAN, or in none if that is 0.
type Address struct {
	Addr inet.GID
	VLAN uint16
}

// addrRank orders new addresses in the GID table, identically on every port: IPv4, then IPv6, then link-local ones.
// Programs that choose no GID use index 0, so that one should be routable. (Linux puts a link-local address there,
// which works on one link only.)
func addrRank(p netip.Prefix) int {
	switch a := p.Addr(); {
	case a.Is4():
		return 0
	case a.IsLinkLocalUnicast():
		return 2
	}
	return 1
}

// from returns the table of the addresses in cfg. Addresses that were in t keep their places.
func (t addrTable) from(cfg *Config) (addrTable, error) {
	t = addrTable{pairs: cfg.PairedGIDs, gids: slices.Clone(t.gids)}
	if t.pairs && len(t.gids) == 0 {
		t.gids = make([]gidSlot, t.step()) // of a link-local address
	}
	for i := range t.gids {
		t.gids[i].live = false
	}
	addrs := cfg.Addrs
	if !cfg.Shared {
		addrs = append(slices.Clone(addrs), netip.PrefixFrom(linkLocal(cfg.MAC).Addr(), 64))
	}
	if err := t.addAll(cfg, addrs, 0); err != nil {
		return t, err
	}
	for _, v := range cfg.VLANs {
		if v.ID == 0 || v.ID > MaxVLAN || cfg.Shared {
			return t, fmt.Errorf("%w: %d", ErrVLAN, v.ID)
		}
		if err := t.addAll(cfg, v.Addrs, v.ID); err != nil {
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
		if !unicastAddr(g.Unmap()) {
			return t, fmt.Errorf("%w: gateway %v", ErrAddress, g)
		}
		t.gateways = append(t.gateways, Address{inet.GIDOf(g), t.vlanOf(g.Unmap())})
	}
	return t, nil
}

// addAll adds addresses in a VLAN.
func (t *addrTable) addAll(cfg *Config, addrs []netip.Prefix, vlan uint16) error {
	addrs = slices.Clone(addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return addrRank(a) - addrRank(b) })
	for _, p := range addrs {
		if a := p.Addr().Unmap(); !p.IsValid() || p.Addr().Is4In6() || !cfg.unicastAddr(a) || !t.add(inet.GIDOf(p.Addr()), vlan) {
			return fmt.Errorf("%w: %v", ErrAddress, p)
		}
		t.prefixes = append(t.prefixes, network{p.Masked(), vlan})
	}
	return nil
}

// vlanOf returns the VLAN whose prefix contains a.
func (t *addrTable) vlanOf(a netip.Addr) uint16 {
	for _, p := range t.prefixes {
		if p.Contains(a) {
			return p.vlan
		}
	}
	return 0
}

// step returns the number of entries of an address.
func (t *addrTable) step() int {
	if t.pairs {
		return 2
	}
	return 1
}

// add puts g into its earlier place, a new one or a free one. It returns false when the table is full or g is in
// another VLAN: peers and rdma_cm name an address without its VLAN.
func (t *addrTable) add(g inet.GID, vlan uint16) bool {
	place, step := -1, t.step()
	for i := 0; i < len(t.gids); i += step {
		if t.gids[i].GID == g {
			again := t.gids[i].live && t.gids[i].VLAN != vlan
			t.set(i, g, vlan)
			return !again
		}
		reserved := t.pairs && i == 0 && !g.Addr().IsLinkLocalUnicast()
		if place < 0 && !t.gids[i].live && !reserved {
			place = i
		}
	}
	first := t.pairs && place == 0
	if place < 0 || len(t.gids) < gidPlaces && !first {
		if len(t.gids)+step > GIDTableLen {
			return false
		}
		place = len(t.gids)
		t.gids = append(t.gids, make([]gidSlot, step)...)
	}
	t.set(place, g, vlan)
	return true
}

// set writes the entries of an address from index i on.
func (t *addrTable) set(i int, g inet.GID, vlan uint16) {
	for k := i; k < i+t.step(); k++ {
		t.gids[k] = gidSlot{GIDEntry{GID: g, Index: uint8(k), Type: GIDTypeRoCEv2, VLAN: vlan}, true}
	}
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

// unicastAddr reports whether a can be the address of one station on a link.
func unicastAddr(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// own reports whether g is one of the NIC's addresses in a VLAN.
func (t *addrTable) own(g *inet.GID, vlan uint16) bool {
	for i := range t.gids { // runs for every packet, so without an iterator
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

// first4 returns the first entry of an IPv4 address in a VLAN, nil if there is none.
func (t *addrTable) first4(vlan uint16) *GIDEntry {
	for g := range t.live {
		if g.GID.Is4() && g.VLAN == vlan {
			return g
		}
	}
	return nil
}

// GIDs returns the GID table. The place of a removed address holds the zero GID.
func (s *Stack) GIDs() []GIDEntry {
	out := make([]GIDEntry, len(s.addrs.gids))
	for i := range out {
		out[i] = GIDEntry{Index: uint8(i), Type: GIDTypeRoCEv2}
	}
	for e := range s.addrs.live {
		out[e.Index] = *e
	}
	return out
}

// GIDError returns err with a GID index and the first GIDs of the table.
func (s *Stack) GIDError(err error, index uint32) error {
	const most = 16
	var have []string
	for e := range s.addrs.live {
		if len(have) == most {
			have = append(have, "...")
			break
		}
		have = append(have, fmt.Sprintf("%d %v", e.Index, e.GID.Addr()))
	}
	return fmt.Errorf("%w (GID index %d; this NIC has %s)", err, index, strings.Join(have, ", "))
}

// IndexOf returns the index of a GID of ours.
func (s *Stack) IndexOf(g inet.GID) (index uint8, ok bool) {
	for e := range s.addrs.live {
		if e.GID == g {
			return e.Index, true
		}
	}
	return 0, false
}

// FirstIPv4 returns the first entry of an IPv4 address outside VLANs, nil if there is none.
func (s *Stack) FirstIPv4() *GIDEntry { return s.addrs.first4(0) }

// SetAddrs replaces the addresses and gateways and announces the new ones. Existing paths keep their source
// address and next hop.
func (s *Stack) SetAddrs(addrs []netip.Prefix, gateways []netip.Addr) error {
	cfg := s.cfg
	cfg.Addrs, cfg.Gateways = slices.Clone(addrs), slices.Clone(gateways)
	t, err := s.addrs.from(&cfg)
	if err != nil {
		return err
	}
	s.addrs, s.cfg = t, cfg
	s.announce()
	return nil
}

// announce sends a gratuitous ARP request (RFC 5227 3) or an unsolicited neighbour advertisement (RFC 4861 7.2.6)
// for each address. On a shared interface the kernel does that.
func (s *Stack) announce() {
	if s.cfg.Shared {
		return
	}
	for e := range s.addrs.live {
		g := &e.GID
		if g.Is4() {
			s.sendARP(arpRequest, e.VLAN, &broadcastMAC, &inet.MAC{}, g, g)
		} else {
			s.sendAdvert(Address{*g, e.VLAN}, &allNodes, &allNodesMAC, false)
		}
	}
}

// changed reports whether the GIDs of t and o differ.
func (t *addrTable) changed(o *addrTable) bool { return !slices.Equal(t.gids, o.gids) }

// RouteBits ranks routes: one to an address of our own is best, then those over prefixes by their length, then
// those over a default gateway (0).
type RouteBits int

// RouteOwn ranks above any prefix.
const RouteOwn RouteBits = 129

// Source returns the entry of the GID table that packets for dst come from, and the rank of the route. ok is false
// if there is no route.
func (s *Stack) Source(dst inet.GID) (e GIDEntry, bits RouteBits, ok bool) {
	t := &s.addrs
	a := dst.Addr()
	bits = -1
	covered := RouteBits(0)
	for g := range t.live {
		if g.GID == dst {
			return *g, RouteOwn, true
		}
		from := g.GID.Addr()
		for _, p := range t.prefixes {
			if p.vlan != g.VLAN || !p.Contains(a) || from.IsLinkLocalUnicast() != a.IsLinkLocalUnicast() {
				continue
			}
			covered = max(covered, RouteBits(p.Bits()))
			if p.Contains(from) && RouteBits(p.Bits()) > bits {
				e, bits = *g, RouteBits(p.Bits())
			}
		}
	}
	if bits >= 0 {
		return e, bits, true
	}
	for g := range t.live {
		if g.GID.Is4() != dst.Is4() || g.GID.Addr().IsLinkLocalUnicast() {
			continue
		}
		if _, ok := t.nextHop(dst, g.VLAN); ok {
			return *g, covered, true
		}
	}
	return e, 0, false
}

// nextHop returns the next hop for g from an address in a VLAN: g itself when it is on-link there, else the gateway
// of its family.
func (t *addrTable) nextHop(g inet.GID, vlan uint16) (Address, bool) {
	a := g.Addr()
	for _, p := range t.prefixes {
		if p.vlan == vlan && p.Contains(a) {
			return Address{g, vlan}, true
		}
	}
	for _, gw := range t.gateways {
		if gw.VLAN == vlan && gw.Addr.Is4() == g.Is4() {
			return gw, true
		}
	}
	return Address{}, false
}
