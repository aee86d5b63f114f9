package rocev2

import "roced/mono"

// Neighbour discovery (RFC 4861).
const (
	ndSolicit    = 135
	ndAdvert     = 136
	ndLen        = 24 // ICMPv6 header, flags and target
	ndHopLimit   = 255
	optSourceLL  = 1
	optTargetLL  = 2
	naSolicited  = 0x40
	naOverride   = 0x20
	ndMessageLen = ndLen + 8 // with one link-layer address option
)

var allNodes = GID{0: 0xff, 1: 0x02, 15: 1}

// solicitedNode returns the solicited-node multicast address of g (RFC 4291
// 2.7.1) and its Ethernet address (RFC 2464 section 7).
func solicitedNode(g *GID) (GID, MAC) {
	return GID{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: g[13], 14: g[14], 15: g[15]},
		MAC{0x33, 0x33, 0xff, g[13], g[14], g[15]}
}

// linkOption finds the link-layer address option typ among the options b. ok is
// false when an option is malformed (RFC 4861 4.6: length 0).
func linkOption(b []byte, typ byte) (mac MAC, found, ok bool) {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < int(b[1])*8 {
			return mac, false, false
		}
		if b[0] == typ && b[1] == 1 {
			mac, found = MAC(b[2:8]), true
		}
		b = b[int(b[1])*8:]
	}
	return mac, found, true
}

// receiveND digests a neighbour solicitation or advertisement whose checksum has
// been verified. The checks are those of RFC 4861 7.1.
func (n *NIC) receiveND(now mono.Time, h *ipHeader) rxReason {
	b := h.payload
	if h.ttl != ndHopLimit || len(b) < ndLen || b[1] != 0 {
		return rxND
	}
	target := GID(b[8:24])
	if target[0] == 0xff || h.src[0] == 0xff || !n.net.rx.srcMAC.unicast() {
		return rxND
	}
	if b[0] == ndSolicit {
		return n.receiveSolicit(now, h, &target)
	}
	return n.receiveAdvert(now, h, &target)
}

// receiveSolicit answers a question for one of our addresses (RFC 4861 7.2.3,
// 7.2.4). One from the unspecified address is somebody's duplicate address
// detection: we own the address, so it is defended (RFC 4862 5.4.3).
func (n *NIC) receiveSolicit(now mono.Time, h *ipHeader, target *GID) rxReason {
	mac, found, ok := linkOption(h.payload[ndLen:], optSourceLL)
	dad := h.src == GID{}
	if !ok || dad && (found || h.dst[0] != 0xff) || found && !mac.unicast() {
		return rxND
	}
	if found {
		if nb := n.net.neigh.byAddr[h.src]; nb != nil {
			n.learn(now, nb, mac)
		}
	}
	if !n.net.addrs.own(target) {
		return rxOK
	}
	switch {
	case dad:
		n.ctr.AddrConflicts++
		n.sendAdvert(target, &allNodes, &MAC{0x33, 0x33, 0, 0, 0, 1}, false)
	case found:
		n.sendAdvert(target, &h.src, &mac, true)
	default: // the option may be left out of a unicast question (RFC 4861 4.3)
		n.sendAdvert(target, &h.src, &n.net.rx.srcMAC, true)
	}
	return rxOK
}

// receiveAdvert takes an answer (RFC 4861 7.2.5).
func (n *NIC) receiveAdvert(now mono.Time, h *ipHeader, target *GID) rxReason {
	flags := h.payload[4]
	mac, found, ok := linkOption(h.payload[ndLen:], optTargetLL)
	if !ok || flags&naSolicited != 0 && h.dst[0] == 0xff || found && !mac.unicast() {
		return rxND
	}
	if n.net.addrs.own(target) {
		if mac == n.cfg.MAC {
			return rxOK // our own, reflected
		}
		n.ctr.AddrConflicts++
		return rxConflict
	}
	nb := n.net.neigh.byAddr[*target]
	switch {
	case nb == nil:
	case !nb.usable():
		if found {
			n.learn(now, nb, mac)
		}
	case !found || mac == nb.mac:
		if flags&naSolicited != 0 {
			n.learn(now, nb, nb.mac)
		}
	case flags&naOverride != 0:
		n.learn(now, nb, mac)
	}
	return rxOK
}

// sendSolicit asks for nb's address, directly where one is known.
func (n *NIC) sendSolicit(nb *neighbour) {
	dst, mac := solicitedNode(&nb.addr)
	if nb.usable() {
		dst, mac = nb.addr, nb.mac
	}
	n.sendND(ndSolicit, 0, &nb.src, &dst, &mac, &nb.addr, optSourceLL)
}

// sendAdvert answers or announces for our address target.
func (n *NIC) sendAdvert(target, dst *GID, mac *MAC, solicited bool) {
	flags := byte(naOverride)
	if solicited {
		flags |= naSolicited
	}
	n.sendND(ndAdvert, flags, target, dst, mac, target, optTargetLL)
}

// sendND queues a message with our link-layer address as its only option.
func (n *NIC) sendND(typ, flags byte, src, dst *GID, mac *MAC, target *GID, opt byte) {
	b := n.net.ctl.alloc(ethLen + ipv6Len + ndMessageLen)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	putEth(b, mac, &n.cfg.MAC, ethTypeIPv6)
	putIPv6(b[ethLen:], 0, ndHopLimit, protoICMPv6, src, dst)
	b[ethLen+5] = ndMessageLen
	m := b[ethLen+ipv6Len:]
	clear(m)
	m[0], m[4] = typ, flags
	copy(m[8:24], target[:])
	m[24], m[25] = opt, 1
	copy(m[26:32], n.cfg.MAC[:])
	putChecksum(m[2:], pseudoSum(src, dst, protoICMPv6, ndMessageLen), m)
}
