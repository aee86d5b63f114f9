package rocev2

import (
	"encoding/binary"

	"roced.io/roced/plugin/mono"
)

// ARP for IPv4 over Ethernet (RFC 826).
const (
	arpLen     = 28
	arpRequest = 1
	arpReply   = 2
)

var arpHeader = [6]byte{0, 1, 8, 0, 6, 4} // Ethernet, IPv4, address lengths

// receiveARP digests the ARP packet b. RFC 826: update the entry of the sender if
// there is one, in whatever direction the packet is; answer requests for our own
// addresses. Entries are never made for strangers.
func (n *NIC) receiveARP(now mono.Time, b []byte) rxReason {
	if len(b) < arpLen {
		return rxShort
	}
	op := binary.BigEndian.Uint16(b[6:])
	if [6]byte(b[:6]) != arpHeader || op != arpRequest && op != arpReply {
		return rxARP
	}
	mac, sender, target := MAC(b[8:14]), gidOf4(b[14:18]), gidOf4(b[24:28])
	if !mac.unicast() {
		return rxARP
	}
	vlan := n.net.rx.vlan
	if n.net.addrs.own(&sender, vlan) && mac != n.cfg.MAC {
		n.ctr.AddrConflicts++
		return rxConflict
	}
	if nb := n.net.neigh.byAddr[station{sender, vlan}]; nb != nil {
		n.learn(now, nb, mac)
	}
	if op == arpRequest && n.net.addrs.own(&target, vlan) && sender != target {
		n.sendARP(arpReply, vlan, &mac, &mac, &target, &sender)
	}
	return rxOK
}

// sendARPRequest asks for nb's address, directly where one is known (RFC 1122
// 2.3.2.1, unicast poll).
func (n *NIC) sendARPRequest(nb *neighbour) {
	dst, target := broadcastMAC, MAC{}
	if nb.usable() {
		dst, target = nb.mac, nb.mac
	}
	n.sendARP(arpRequest, nb.vlan, &dst, &target, &nb.src, &nb.addr)
}

// sendARP queues an ARP packet from our address src.
func (n *NIC) sendARP(op, vlan uint16, dst, targetMAC *MAC, src, target *GID) {
	t := newTag(vlan, 0)
	b := n.net.ctl.alloc(t.len() + arpLen)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	a := putEth(b, dst, &n.cfg.MAC, t, ethTypeARP)
	copy(a, arpHeader[:])
	binary.BigEndian.PutUint16(a[6:], op)
	copy(a[8:14], n.cfg.MAC[:])
	copy(a[14:18], src[12:])
	copy(a[18:24], targetMAC[:])
	copy(a[24:28], target[12:])
}

// announce tells the link the NIC's addresses: a gratuitous ARP request (RFC 5227
// 3) or an unsolicited neighbour advertisement (RFC 4861 7.2.6) for each.
func (n *NIC) announce() {
	if n.cfg.Shared {
		return // the kernel does that
	}
	for e := range n.net.addrs.live {
		g := &e.GID
		if g.is4() {
			n.sendARP(arpRequest, e.VLAN, &broadcastMAC, &MAC{}, g, g)
		} else {
			n.sendAdvert(station{*g, e.VLAN}, &allNodes, &MAC{0x33, 0x33, 0, 0, 0, 1}, false)
		}
	}
}
