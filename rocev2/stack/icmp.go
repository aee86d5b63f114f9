package stack

import (
	"encoding/binary"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// ICMP echo (RFC 792, RFC 4443).
const (
	icmpLen         = 8
	icmpEchoReply   = 0
	icmpEcho        = 8
	icmpv6Echo      = 128
	icmpv6EchoReply = 129
)

// receiveICMP answers an echo request to one of our IPv4 addresses and drops all other messages.
func (s *Stack) receiveICMP(d *Datagram) Drop {
	m := d.Payload
	if len(m) < icmpLen {
		return DropShort
	}
	if inet.Checksum(0, m) != 0 {
		return DropICMP
	}
	return s.receiveEcho(d, icmpEcho, icmpEchoReply)
}

// receiveICMPv6 handles neighbour discovery and answers echo requests.
func (s *Stack) receiveICMPv6(now mono.Time, d *Datagram) Drop {
	m := d.Payload
	if len(m) < icmpLen {
		return DropShort
	}
	if inet.Checksum(inet.PseudoSum(&d.Src, &d.Dst, inet.ProtoICMPv6, len(m)), m) != 0 {
		return DropICMP
	}
	if m[0] == ndSolicit || m[0] == ndAdvert {
		return s.receiveND(now, d)
	}
	return s.receiveEcho(d, icmpv6Echo, icmpv6EchoReply)
}

// receiveEcho answers a valid message if it is an echo request.
func (s *Stack) receiveEcho(d *Datagram, request, reply byte) Drop {
	if !s.addrs.own(&d.Dst, d.VLAN) {
		return DropAddr
	}
	if d.Payload[0] != request || d.Payload[1] != 0 {
		return DropICMP
	}
	s.sendEchoReply(d, reply)
	return Accepted
}

// sendEchoReply queues the answer to the echo request d for the station that sent it. The stack does not answer
// groups (RFC 1122 3.2.2).
func (s *Stack) sendEchoReply(d *Datagram, typ byte) {
	l3, etherType := inet.IPv4Len, uint16(inet.TypeIPv4)
	if d.V6 {
		l3, etherType = inet.IPv6Len, inet.TypeIPv6
	}
	size := l3 + len(d.Payload)
	if size > s.cfg.MTU || !d.SrcMAC.Unicast() || !unicastAddr(d.Src.Addr()) {
		s.Counters.TxDroppedControl++
		return
	}
	ip := s.control(&d.SrcMAC, inet.NewTag(d.VLAN, 0), etherType, size)
	if ip == nil {
		return
	}
	ip, m := ip[:l3], ip[l3:]
	copy(m, d.Payload)
	m[0], m[2], m[3] = typ, 0, 0
	if d.V6 {
		inet.PutIPv6(ip, 0, defaultTTL, inet.ProtoICMPv6, &d.Dst, &d.Src)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(m)))
		inet.PutChecksum(m[2:], inet.PseudoSum(&d.Dst, &d.Src, inet.ProtoICMPv6, len(m)), m)
		return
	}
	inet.PutIPv4(ip, 0, defaultTTL, inet.ProtoICMP, &d.Dst, &d.Src)
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	binary.BigEndian.PutUint16(ip[4:], s.TakeID(1))
	inet.SealIPv4(ip)
	inet.PutChecksum(m[2:], 0, m)
}
