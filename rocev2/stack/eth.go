package stack

import (
	"encoding/binary"
	"fmt"
)

// Ethernet framing (IEEE 802.3 clause 3, DIX type field).
const (
	EthernetLen = 14
	VLANLen     = 4 // the tag of IEEE 802.1Q, between addresses and type
	TypeIPv4    = 0x0800
	TypeARP     = 0x0806
	TypeVLAN    = 0x8100
	TypeIPv6    = 0x86dd
)

// MAC is an Ethernet address.
type MAC [6]byte

var (
	broadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodesMAC  = MAC{0x33, 0x33, 0, 0, 0, 1}
	allHostsMAC  = MAC{1, 0, 0x5e, 0, 0, 1}
)

// String formats the address.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// unicast reports whether m can be the address of one station: neither a group address nor all zero.
func (m *MAC) unicast() bool { return m[0]&1 == 0 && *m != MAC{} }

// MaxVLAN is the highest identifier of a VLAN; 0 means none, and 4095 is reserved (IEEE 802.1Q 9.6).
const MaxVLAN = 4094

// Tag is the TCI of IEEE 802.1Q 9.6: priority, drop eligible, VLAN. The zero Tag means an untagged frame.
type Tag uint16

// newTag returns the tag of a frame in a VLAN, the zero Tag for VLAN 0.
func newTag(vlan uint16, priority uint8) Tag {
	if vlan == 0 {
		return 0
	}
	return Tag(priority)<<13 | Tag(vlan)
}

func (t Tag) vlan() uint16 { return uint16(t) & 0xfff }

// len returns the length of an Ethernet header with this tag.
func (t Tag) len() int {
	if t == 0 {
		return EthernetLen
	}
	return EthernetLen + VLANLen
}

// PutEthernet writes an Ethernet header at the start of b and returns the rest of b.
func PutEthernet(b []byte, dst, src *MAC, t Tag, typ uint16) []byte {
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	if t != 0 {
		binary.BigEndian.PutUint16(b[12:], TypeVLAN)
		binary.BigEndian.PutUint16(b[14:], uint16(t))
	}
	l2 := t.len()
	binary.BigEndian.PutUint16(b[l2-2:], typ)
	return b[l2:]
}

// EtherType returns the EtherType of a frame, the length of its Ethernet header, and its tag. All are 0 for a frame
// that is too short.
func EtherType(frame []byte) (typ uint16, l2 int, t Tag) {
	if len(frame) < EthernetLen {
		return 0, 0, 0
	}
	if typ = binary.BigEndian.Uint16(frame[12:]); typ != TypeVLAN {
		return typ, EthernetLen, 0
	}
	if len(frame) < EthernetLen+VLANLen {
		return 0, 0, 0
	}
	return binary.BigEndian.Uint16(frame[16:]), EthernetLen + VLANLen, Tag(binary.BigEndian.Uint16(frame[14:]))
}

// acceptMAC reports whether the stack receives frames for this destination address: its own, broadcast, all-nodes
// (RFC 4291 2.7.1), its groups, all-hosts while it has groups (for their queries), and the solicited-node groups of
// its addresses (RFC 2464 section 7: 33:33 and the low 32 bits of the group).
func (s *Stack) acceptMAC(frame []byte) bool {
	dst := MAC(frame[:6])
	if dst == s.cfg.MAC || dst == broadcastMAC {
		return true
	}
	if dst[0]&1 == 0 {
		return false
	}
	g := &s.groups
	if dst == allNodesMAC || g.macs[dst] > 0 || len(g.list) > 0 && dst == allHostsMAC {
		return true
	}
	if dst[0] != 0x33 || dst[1] != 0x33 || dst[2] != 0xff {
		return false
	}
	for e := range s.addrs.live {
		if g := &e.GID; !g.is4() && [3]byte(g[13:]) == [3]byte(dst[3:]) {
			return true
		}
	}
	return false
}
