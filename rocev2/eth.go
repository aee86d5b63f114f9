package rocev2

import "encoding/binary"

// Ethernet framing (IEEE 802.3 clause 3, DIX type field).
const (
	ethLen      = 14
	ethTypeIPv4 = 0x0800
	ethTypeARP  = 0x0806
	ethTypeIPv6 = 0x86dd
)

var broadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// unicast reports whether m can be the address of one station: not a group
// address and not all zero.
func (m *MAC) unicast() bool { return m[0]&1 == 0 && *m != MAC{} }

// putEth writes an Ethernet header at the start of b.
func putEth(b []byte, dst, src *MAC, typ uint16) {
	copy(b[0:6], dst[:])
	copy(b[6:12], src[:])
	binary.BigEndian.PutUint16(b[12:], typ)
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
