package rocev2

import "encoding/binary"

// Ethernet framing (IEEE 802.3 clause 3, DIX type field).
const (
	ethLen      = 14
	vlanLen     = 4 // the tag of IEEE 802.1Q, between addresses and type
	ethTypeIPv4 = 0x0800
	ethTypeARP  = 0x0806
	ethTypeVLAN = 0x8100
	ethTypeIPv6 = 0x86dd
)

var broadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// unicast reports whether m can be the address of one station: not a group
// address and not all zero.
func (m *MAC) unicast() bool { return m[0]&1 == 0 && *m != MAC{} }

// MaxVLAN is the highest identifier of a VLAN; 0 means none, and 4095 is reserved (IEEE 802.1Q 9.6).
const MaxVLAN = 4094

// tag is the TCI of IEEE 802.1Q 9.6: priority, drop eligible, VLAN. The zero tag is none.
type tag uint16

// newTag returns the tag of a frame in a VLAN, none outside all of them.
func newTag(vlan uint16, priority uint8) tag {
	if vlan == 0 {
		return 0
	}
	return tag(priority)<<13 | tag(vlan)
}

func (t tag) vlan() uint16 { return uint16(t) & 0xfff }

// len is the length of an Ethernet header with this tag.
func (t tag) len() int {
	if t == 0 {
		return ethLen
	}
	return ethLen + vlanLen
}

// putEth writes an Ethernet header at the start of b and returns what follows it.
func putEth(b []byte, dst, src *MAC, t tag, typ uint16) []byte {
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	if t != 0 {
		binary.BigEndian.PutUint16(b[12:], ethTypeVLAN)
		binary.BigEndian.PutUint16(b[14:], uint16(t))
	}
	l2 := t.len()
	binary.BigEndian.PutUint16(b[l2-2:], typ)
	return b[l2:]
}

// etherType returns the type of what a frame carries, where that begins, and its tag, or the zero one; 0 for
// a frame that is too short.
func etherType(frame []byte) (typ uint16, l2 int, t tag) {
	if len(frame) < ethLen {
		return 0, 0, 0
	}
	if typ = binary.BigEndian.Uint16(frame[12:]); typ != ethTypeVLAN {
		return typ, ethLen, 0
	}
	if len(frame) < ethLen+vlanLen {
		return 0, 0, 0
	}
	return binary.BigEndian.Uint16(frame[16:]), ethLen + vlanLen, tag(binary.BigEndian.Uint16(frame[14:]))
}

// acceptMAC reports whether the destination address of frame is ours: the NIC's
// own, broadcast, all-nodes (RFC 4291 2.7.1), all-hosts while there are groups whose queries
// go there, that of a group that the NIC is in, or a solicited-node group of one of our
// addresses (RFC 2464 section 7: 33:33 and the low 32 bits of the group).
func (n *NIC) acceptMAC(frame []byte) bool {
	dst := MAC(frame[:6])
	if dst == n.cfg.MAC || dst == broadcastMAC {
		return true
	}
	if dst[0]&1 == 0 {
		return false
	}
	m := &n.net.mcast
	if dst == (MAC{0x33, 0x33, 0, 0, 0, 1}) || m.macs[dst] > 0 || len(m.groups) > 0 && dst == (MAC{1, 0, 0x5e, 0, 0, 1}) {
		return true
	}
	if dst[0] != 0x33 || dst[1] != 0x33 || dst[2] != 0xff {
		return false
	}
	for e := range n.net.addrs.live {
		g := &e.GID
		if !g.is4() && g[13] == dst[3] && g[14] == dst[4] && g[15] == dst[5] {
			return true
		}
	}
	return false
}
