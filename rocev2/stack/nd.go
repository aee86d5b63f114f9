package stack

import (
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

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

var allNodes = inet.GID{0: 0xff, 1: 0x02, 15: 1}

// solicitedNode returns the solicited-node multicast address of g (RFC 4291 2.7.1) and its Ethernet address
// (RFC 2464 section 7).
func solicitedNode(g *inet.GID) (inet.GID, inet.MAC) {
	return inet.GID{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: g[13], 14: g[14], 15: g[15]},
		inet.MAC{0x33, 0x33, 0xff, g[13], g[14], g[15]}
}

// linkOption finds the link-layer address option typ among the options b. ok is false for a malformed option
// (RFC 4861 4.6: length 0).
func linkOption(b []byte, typ byte) (mac inet.MAC, found, ok bool) {
	for len(b) > 0 {
		if len(b) < 8 || b[1] == 0 || len(b) < int(b[1])*8 {
			return mac, false, false
		}
		if b[0] == typ && b[1] == 1 {
			mac, found = inet.MAC(b[2:8]), true
		}
		b = b[int(b[1])*8:]
	}
	return mac, found, true
}

// receiveND handles a neighbour solicitation or advertisement with a valid checksum. The checks are those of
// RFC 4861 7.1.
func (s *Stack) receiveND(now mono.Time, d *Datagram) Drop {
	b := d.Payload
	if d.TTL != ndHopLimit || len(b) < ndLen || b[1] != 0 {
		return DropND
	}
	target := inet.GID(b[8:24])
	if target[0] == 0xff || d.Src[0] == 0xff || !d.SrcMAC.Unicast() {
		return DropND
	}
	if b[0] == ndSolicit {
		return s.receiveSolicit(now, d, &target)
	}
	return s.receiveAdvert(now, d, &target)
}

// receiveSolicit answers a solicitation for one of our addresses (RFC 4861 7.2.3, 7.2.4). The unspecified source
// address marks duplicate address detection by another station: the stack defends its address (RFC 4862 5.4.3).
func (s *Stack) receiveSolicit(now mono.Time, d *Datagram, target *inet.GID) Drop {
	mac, found, ok := linkOption(d.Payload[ndLen:], optSourceLL)
	dad := d.Src == inet.GID{}
	if !ok || dad && (found || d.Dst[0] != 0xff) || found && !mac.Unicast() {
		return DropND
	}
	if found {
		if nb := s.neigh.byAddr[Address{d.Src, d.VLAN}]; nb != nil {
			s.Learn(now, nb, mac)
		}
	}
	own := Address{*target, d.VLAN}
	if !s.addrs.own(target, own.VLAN) {
		return Accepted
	}
	switch {
	case dad:
		s.Counters.AddrConflicts++
		s.sendAdvert(own, &allNodes, &allNodesMAC, false)
	case found:
		s.sendAdvert(own, &d.Src, &mac, true)
	default: // a unicast solicitation may omit the option (RFC 4861 4.3)
		s.sendAdvert(own, &d.Src, &d.SrcMAC, true)
	}
	return Accepted
}

// receiveAdvert handles an advertisement (RFC 4861 7.2.5).
func (s *Stack) receiveAdvert(now mono.Time, d *Datagram, target *inet.GID) Drop {
	flags := d.Payload[4]
	mac, found, ok := linkOption(d.Payload[ndLen:], optTargetLL)
	if !ok || flags&naSolicited != 0 && d.Dst[0] == 0xff || found && !mac.Unicast() {
		return DropND
	}
	if s.addrs.own(target, d.VLAN) {
		if mac == s.cfg.MAC {
			return Accepted // our own, reflected
		}
		s.Counters.AddrConflicts++
		return DropConflict
	}
	nb := s.neigh.byAddr[Address{*target, d.VLAN}]
	switch {
	case nb == nil:
	case !nb.Usable():
		if found {
			s.Learn(now, nb, mac)
		}
	case !found || mac == nb.MAC:
		if flags&naSolicited != 0 {
			s.Learn(now, nb, nb.MAC)
		}
	case flags&naOverride != 0:
		s.Learn(now, nb, mac)
	}
	return Accepted
}

// sendSolicit requests nb's address, by unicast where one is known.
func (s *Stack) sendSolicit(nb *Neighbour) {
	dst, mac := solicitedNode(&nb.Addr)
	if nb.Usable() {
		dst, mac = nb.Addr, nb.MAC
	}
	s.sendND(ndSolicit, 0, Address{nb.src, nb.VLAN}, &dst, &mac, &nb.Addr, optSourceLL)
}

// sendAdvert advertises our address own.
func (s *Stack) sendAdvert(own Address, dst *inet.GID, mac *inet.MAC, solicited bool) {
	flags := byte(naOverride)
	if solicited {
		flags |= naSolicited
	}
	s.sendND(ndAdvert, flags, own, dst, mac, &own.Addr, optTargetLL)
}

// sendND queues a message with our link-layer address as its only option.
func (s *Stack) sendND(typ, flags byte, src Address, dst *inet.GID, mac *inet.MAC, target *inet.GID, opt byte) {
	ip := s.control(mac, inet.NewTag(src.VLAN, 0), inet.TypeIPv6, inet.IPv6Len+ndMessageLen)
	if ip == nil {
		return
	}
	inet.PutIPv6(ip, 0, ndHopLimit, inet.ProtoICMPv6, &src.Addr, dst)
	ip[5] = ndMessageLen
	m := ip[inet.IPv6Len:]
	clear(m)
	m[0], m[4] = typ, flags
	copy(m[8:24], target[:])
	m[24], m[25] = opt, 1
	copy(m[26:32], s.cfg.MAC[:])
	inet.PutChecksum(m[2:], inet.PseudoSum(&src.Addr, dst, inet.ProtoICMPv6, ndMessageLen), m)
}
