package rocev2

import "roced.io/roced/plugin/mono"

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
		if nb := n.net.neigh.byAddr[station{h.src, n.net.rx.vlan}]; nb != nil {
			n.learn(now, nb, mac)
		}
	}
	own := station{*target, n.net.rx.vlan}
	if !n.net.addrs.own(target, own.vlan) {
		return rxOK
	}
	switch {
	case dad:
		n.ctr.AddrConflicts++
		n.sendAdvert(own, &allNodes, &MAC{0x33, 0x33, 0, 0, 0, 1}, false)
	case found:
		n.sendAdvert(own, &h.src, &mac, true)
	default: // the option may be left out of a unicast question (RFC 4861 4.3)
		n.sendAdvert(own, &h.src, &n.net.rx.srcMAC, true)
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
	if n.net.addrs.own(target, n.net.rx.vlan) {
		if mac == n.cfg.MAC {
			return rxOK // our own, reflected
		}
		n.ctr.AddrConflicts++
		return rxConflict
	}
	nb := n.net.neigh.byAddr[station{*target, n.net.rx.vlan}]
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
	n.sendND(ndSolicit, 0, station{nb.src, nb.vlan}, &dst, &mac, &nb.addr, optSourceLL)
}

// sendAdvert answers or announces for our address own.
func (n *NIC) sendAdvert(own station, dst *GID, mac *MAC, solicited bool) {
	flags := byte(naOverride)
	if solicited {
		flags |= naSolicited
	}
	n.sendND(ndAdvert, flags, own, dst, mac, &own.addr, optTargetLL)
}

// sendND queues a message with our link-layer address as its only option.
func (n *NIC) sendND(typ, flags byte, src station, dst *GID, mac *MAC, target *GID, opt byte) {
	t := newTag(src.vlan, 0)
	b := n.net.ctl.alloc(t.len() + ipv6Len + ndMessageLen)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	ip := putEth(b, mac, &n.cfg.MAC, t, ethTypeIPv6)
	putIPv6(ip, 0, ndHopLimit, protoICMPv6, &src.addr, dst)
	ip[5] = ndMessageLen
	m := ip[ipv6Len:]
	clear(m)
	m[0], m[4] = typ, flags
	copy(m[8:24], target[:])
	m[24], m[25] = opt, 1
	copy(m[26:32], n.cfg.MAC[:])
	putChecksum(m[2:], pseudoSum(&src.addr, dst, protoICMPv6, ndMessageLen), m)
}
