package stack

import (
	"roced.io/roced/bth/inet"
)

var (
	broadcastMAC = inet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodesMAC  = inet.MAC{0x33, 0x33, 0, 0, 0, 1}
	allHostsMAC  = inet.MAC{1, 0, 0x5e, 0, 0, 1}
)

// MaxVLAN is the highest identifier of a VLAN; 0 means none, and 4095 is reserved (IEEE 802.1Q 9.6).
const MaxVLAN = 4094

// acceptMAC reports whether the stack receives frames for this destination address: its own, broadcast, all-nodes
// (RFC 4291 2.7.1), its groups, all-hosts while it has groups (for their queries), and the solicited-node groups of
// its addresses (RFC 2464 section 7: 33:33 and the low 32 bits of the group).
func (s *Stack) acceptMAC(frame []byte) bool {
	dst := inet.MAC(frame[:6])
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
		if g := &e.GID; !g.Is4() && [3]byte(g[13:]) == [3]byte(dst[3:]) {
			return true
		}
	}
	return false
}
