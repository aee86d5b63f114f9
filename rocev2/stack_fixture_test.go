package rocev2

import (
	"encoding/binary"
	"testing"

	"roced.io/roced/bth/inet"
)

// Protocol numbers and limits of package stack.
const (
	arpRequest, arpReply          = 1, 2
	icmpEchoReply, icmpEcho       = 0, 8
	icmpv6Echo, icmpv6EchoReply   = 128, 129
	igmpQuery, mldQuery, ndAdvert = 0x11, 130, 136
	naSolicited, naOverride       = 0x40, 0x20

	ipv4Src, ipv4Dst, ipv4DF = 12, 16, 0x4000

	controlSlots = 64
	gidPlaces    = 16
	maxAddrs     = 256
	maxSocketID  = 128
)

// gid4 returns the GID of the four bytes of an IPv4 address.
func gid4(b []byte) inet.GID {
	return inet.GID{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

// connectAV gives q the path of av and the address of its next hop.
func connectAV(t testing.TB, n *NIC, q *QueuePair, av AddressVector, mac inet.MAC) {
	t.Helper()
	p, err := n.net.NewPath(0, av)
	if err != nil {
		t.Fatal(err)
	}
	q.path = p
	if p.Next != nil {
		n.net.Learn(0, p.Next, mac)
	}
	discardAll(n)
}

// ipv6Frame returns a frame with a body. The body has a checksum at offset 2 after skip bytes.
func ipv6Frame(dstMAC, srcMAC inet.MAC, hop, next byte, src, dst inet.GID, body []byte, skip int) []byte {
	b := make([]byte, inet.EthernetLen+inet.IPv6Len+len(body))
	ip := inet.PutEthernet(b, &dstMAC, &srcMAC, 0, inet.TypeIPv6)
	inet.PutIPv6(ip, 0, hop, next, &src, &dst)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
	copy(ip[inet.IPv6Len:], body)
	m := ip[inet.IPv6Len+skip:]
	inet.PutChecksum(m[2:], inet.PseudoSum(&src, &dst, inet.ProtoICMPv6, len(m)), m)
	return b
}

// advertFrame returns a neighbour advertisement of the address us from mac to dst.
func advertFrame(flags byte, mac inet.MAC, us, dst inet.GID) []byte {
	m := make([]byte, 32)
	m[0], m[4] = ndAdvert, flags
	copy(m[8:], us[:])
	m[24], m[25] = 2, 1
	copy(m[26:], mac[:])
	return ipv6Frame(macA, mac, 255, inet.ProtoICMPv6, us, dst, m, 0)
}

// mldQueryFrame returns a general query that stations answer within a second.
func mldQueryFrame() []byte {
	m := make([]byte, 8+24)
	copy(m, []byte{inet.ProtoICMPv6, 0, 5, 2, 0, 0, 1, 0, mldQuery, 0, 0, 0, 3, 232})
	return ipv6Frame(inet.MAC{0x33, 0x33, 0, 0, 0, 1}, macB, 1, inet.ProtoHopByHop, gid("fe80::ff:fe00:b"), gid("ff02::1"), m, 8)
}

// igmpQueryFrame returns a general query that stations answer within a second.
func igmpQueryFrame() []byte {
	const l3 = inet.IPv4Len + 4
	src, dst := gid("10.0.0.2"), gid("224.0.0.1")
	b := make([]byte, inet.EthernetLen+l3+8)
	ip := inet.PutEthernet(b, &inet.MAC{1, 0, 0x5e, 0, 0, 1}, &macB, 0, inet.TypeIPv4)
	inet.PutIPv4(ip, 0xc0, 1, inet.ProtoIGMP, &src, &dst)
	ip[0], ip[3] = 0x40|l3/4, l3+8
	copy(ip[inet.IPv4Len:], []byte{0x94, 4, 0, 0})
	inet.SealIPv4(ip[:l3])
	m := ip[l3:]
	m[0], m[1] = igmpQuery, 10
	inet.PutChecksum(m[2:], 0, m)
	return b
}

// sourceIndex returns the index of an address of n.
func sourceIndex(t testing.TB, n *NIC, g inet.GID) uint8 {
	t.Helper()
	i, ok := n.net.IndexOf(g)
	if !ok {
		t.Fatalf("no address %v", g.Addr())
	}
	return i
}
