// Package inet has the addresses and headers below RoCEv2: Ethernet, IPv4, IPv6, UDP and their checksums. The network
// stack of a NIC and its ports share them.
//
// No promise: this package may change between releases.
package inet

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

// String formats the address.
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// Unicast reports whether m can be the address of one station: neither a group address nor all zero.
func (m *MAC) Unicast() bool { return m[0]&1 == 0 && *m != MAC{} }

// Tag is the TCI of IEEE 802.1Q 9.6: priority, drop eligible, VLAN. The zero Tag means an untagged frame.
type Tag uint16

// NewTag returns the tag of a frame in a VLAN, the zero Tag for VLAN 0.
func NewTag(vlan uint16, priority uint8) Tag {
	if vlan == 0 {
		return 0
	}
	return Tag(priority)<<13 | Tag(vlan)
}

// VLAN returns the VLAN of a frame with this tag, 0 for none.
func (t Tag) VLAN() uint16 { return uint16(t) & 0xfff }

// Priority returns the priority code point.
func (t Tag) Priority() uint8 { return uint8(t >> 13) }

// Len returns the length of an Ethernet header with this tag.
func (t Tag) Len() int {
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
	l2 := t.Len()
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
