package rocev2

import "encoding/binary"

// RoCE has no LIDs, and Linux refuses paths without a global route header. Programs that
// are not given a GID index ask for such paths all the same, and know of their peer the LID
// alone (ibv_rc_pingpong without -g). So a port has a LID here: the lower half of its first
// IPv4 address. A path to a LID goes to the address that has this lower half and the
// upper one of our own, which is right between stations that have the upper half in common.

// LID returns the port's LID, 0 if it has no IPv4 address.
func (n *NIC) LID() uint16 {
	if e := n.net.addrs.first4(0); e != nil {
		return binary.BigEndian.Uint16(e.GID[14:])
	}
	return 0
}

// LIDVector returns the address vector of a path that names its destination by a LID; false
// if there can be none.
func (n *NIC) LIDVector(dlid uint16) (AddressVector, bool) {
	e := n.net.addrs.first4(0)
	if e == nil || dlid == 0 {
		return AddressVector{}, false
	}
	av := AddressVector{DGID: e.GID, SGIDIndex: e.Index}
	binary.BigEndian.PutUint16(av.DGID[14:], dlid)
	return av, true
}

// first4 returns the first entry of an IPv4 address in a VLAN, or in none, nil if there is none.
func (t *addrTable) first4(vlan uint16) *GIDEntry {
	for g := range t.live {
		if g.GID.is4() && g.VLAN == vlan {
			return g
		}
	}
	return nil
}
