package rocev2

import (
	"encoding/binary"

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

// putChecksum stores at b the Internet checksum of m on top of s. b is the
// checksum field inside m and must be zero.
func putChecksum(b []byte, s uint64, m []byte) {
	binary.BigEndian.PutUint16(b, checksum(s, m))
}

// receiveICMP answers an echo request to one of our IPv4 addresses; other
// messages are not for us.
func (n *NIC) receiveICMP(h *ipHeader) rxReason {
	m := h.payload
	if len(m) < icmpLen {
		return rxShort
	}
	if checksum(0, m) != 0 {
		return rxICMP
	}
	if !n.net.addrs.own(&h.dst, n.net.rx.vlan) {
		return rxAddr
	}
	if m[0] != icmpEcho || m[1] != 0 {
		return rxICMP
	}
	n.sendEchoReply(h, ipv4Len, icmpEchoReply)
	return rxOK
}

// receiveICMPv6 takes neighbour discovery and answers echo requests.
func (n *NIC) receiveICMPv6(now mono.Time, h *ipHeader) rxReason {
	m := h.payload
	if len(m) < icmpLen {
		return rxShort
	}
	if checksum(pseudoSum(&h.src, &h.dst, protoICMPv6, len(m)), m) != 0 {
		return rxICMP
	}
	if m[0] == ndSolicit || m[0] == ndAdvert {
		return n.receiveND(now, h)
	}
	if !n.net.addrs.own(&h.dst, n.net.rx.vlan) {
		return rxAddr
	}
	if m[0] != icmpv6Echo || m[1] != 0 {
		return rxICMP
	}
	n.sendEchoReply(h, ipv6Len, icmpv6EchoReply)
	return rxOK
}

// sendEchoReply queues the answer to the echo request in h, to the station that
// it came from. Nothing is sent to groups (RFC 1122 3.2.2).
func (n *NIC) sendEchoReply(h *ipHeader, l3 int, typ byte) {
	size := l3 + len(h.payload)
	if size > n.net.mtu || !n.net.rx.srcMAC.unicast() || !stationAddr(h.src.Addr()) {
		n.ctr.TxDroppedControl++
		return
	}
	t := newTag(n.net.rx.vlan, 0)
	b := n.net.ctl.alloc(t.len() + size)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	etherType := uint16(ethTypeIPv4)
	if h.v6 {
		etherType = ethTypeIPv6
	}
	ip := putEth(b, &n.net.rx.srcMAC, &n.cfg.MAC, t, etherType)
	ip, m := ip[:l3], ip[l3:]
	copy(m, h.payload)
	m[0], m[2], m[3] = typ, 0, 0
	if h.v6 {
		putIPv6(ip, 0, defaultTTL, protoICMPv6, &h.dst, &h.src)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(m)))
		putChecksum(m[2:], pseudoSum(&h.dst, &h.src, protoICMPv6, len(m)), m)
		return
	}
	putIPv4(ip, 0, defaultTTL, protoICMP, &h.dst, &h.src)
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	binary.BigEndian.PutUint16(ip[4:], n.takeID(1))
	sealIPv4(ip)
	putChecksum(m[2:], 0, m)
}
