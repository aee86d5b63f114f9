package stack

import (
	"encoding/binary"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// ARP for IPv4 over Ethernet (RFC 826).
const (
	arpLen     = 28
	arpRequest = 1
	arpReply   = 2
)

var arpHeader = [6]byte{0, 1, 8, 0, 6, 4} // Ethernet, IPv4, address lengths

// receiveARP handles the ARP packet b. As RFC 826 requires, it updates the entry of the sender if there is one,
// whatever the operation, and answers requests for our own addresses. It never creates entries.
func (s *Stack) receiveARP(now mono.Time, b []byte) Drop {
	if len(b) < arpLen {
		return DropShort
	}
	op := binary.BigEndian.Uint16(b[6:])
	if [6]byte(b[:6]) != arpHeader || op != arpRequest && op != arpReply {
		return DropARP
	}
	mac, sender, target := inet.MAC(b[8:14]), inet.GIDOf4(b[14:18]), inet.GIDOf4(b[24:28])
	if !mac.Unicast() {
		return DropARP
	}
	vlan := s.in.VLAN
	if s.addrs.own(&sender, vlan) && mac != s.cfg.MAC {
		s.Counters.AddrConflicts++
		return DropConflict
	}
	if nb := s.neigh.byAddr[Address{sender, vlan}]; nb != nil {
		s.Learn(now, nb, mac)
	}
	if op == arpRequest && s.addrs.own(&target, vlan) && sender != target {
		s.sendARP(arpReply, vlan, &mac, &mac, &target, &sender)
	}
	return Accepted
}

// sendARPRequest requests nb's address, by unicast where one is known (RFC 1122 2.3.2.1, unicast poll).
func (s *Stack) sendARPRequest(nb *Neighbour) {
	dst, target := broadcastMAC, inet.MAC{}
	if nb.Usable() {
		dst, target = nb.MAC, nb.MAC
	}
	s.sendARP(arpRequest, nb.VLAN, &dst, &target, &nb.src, &nb.Addr)
}

// sendARP queues an ARP packet from our address src.
func (s *Stack) sendARP(op, vlan uint16, dst, targetMAC *inet.MAC, src, target *inet.GID) {
	a := s.control(dst, inet.NewTag(vlan, 0), inet.TypeARP, arpLen)
	if a == nil {
		return
	}
	copy(a, arpHeader[:])
	binary.BigEndian.PutUint16(a[6:], op)
	copy(a[8:14], s.cfg.MAC[:])
	copy(a[14:18], src[12:])
	copy(a[18:24], targetMAC[:])
	copy(a[24:28], target[12:])
}
