package inet

import "encoding/binary"

// Header lengths, Internet protocol numbers and bits.
const (
	IPv4Len    = 20
	IPv4MaxLen = 60
	IPv6Len    = 40
	UDPLen     = 8
	MaxIPLen   = 65535 // of an IPv4 packet

	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoIGMP     = 2
	ProtoUDP      = 17
	ProtoICMPv6   = 58

	// ECN bits (RFC 3168 section 5).
	ECNMask = 0x03
	ECT0    = 0x02
	CE      = 0x03

	IPv4DF = 0x4000 // of the word with the fragment offset
)

// PutIPv4 writes an IPv4 header without options. DF is set; length, ID and checksum are zero.
func PutIPv4(b []byte, tos, ttl, proto byte, src, dst *GID) {
	b = b[:IPv4Len]
	b[0], b[1] = 0x45, tos
	clear(b[2:6])
	binary.BigEndian.PutUint16(b[6:], IPv4DF)
	b[8], b[9] = ttl, proto
	clear(b[10:12])
	copy(b[12:16], src[12:])
	copy(b[16:20], dst[12:])
}

// PutIPv6 writes an IPv6 header with flow label 0, as rxe does, and length 0.
func PutIPv6(b []byte, tclass, hop, next byte, src, dst *GID) {
	b = b[:IPv6Len]
	b[0], b[1], b[2], b[3] = 0x60|tclass>>4, tclass<<4, 0, 0
	b[4], b[5] = 0, 0
	b[6], b[7] = next, hop
	copy(b[8:24], src[:])
	copy(b[24:40], dst[:])
}

// SetFlowLabel sets the flow label, 20 bits, of the IPv6 header h.
func SetFlowLabel(h []byte, label uint32) {
	h[1] = h[1]&0xf0 | byte(label>>16)&0xf
	binary.BigEndian.PutUint16(h[2:], uint16(label))
}

// FlowLabel returns the flow label of the IP header h, 0 for IPv4.
func FlowLabel(h []byte) uint32 {
	if h[0]>>4 != 6 {
		return 0
	}
	return binary.BigEndian.Uint32(h) & 0xfffff
}

// DSCP returns the differentiated services code point of the IP header h.
func DSCP(h []byte) uint8 {
	if h[0]>>4 == 6 {
		return (h[0]<<4 | h[1]>>4) >> 2
	}
	return h[1] >> 2
}

// SealIPv4 computes the header checksum of the IPv4 header h.
func SealIPv4(h []byte) {
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], Checksum(0, h))
}

// SetLengths sets the length fields of the IP header l3 and the UDP header udp for n bytes of UDP payload, and the
// ID of an IPv4 header. It does not update the IPv4 header checksum: the ICRC masks it.
func SetLengths(l3, udp []byte, id uint16, n int) {
	binary.BigEndian.PutUint16(udp[4:], uint16(UDPLen+n))
	if l3[0]>>4 == 6 {
		binary.BigEndian.PutUint16(l3[4:], uint16(UDPLen+n))
		return
	}
	binary.BigEndian.PutUint16(l3[2:], uint16(len(l3)+UDPLen+n))
	binary.BigEndian.PutUint16(l3[4:], id)
}

// sum16 adds the 16-bit big-endian words of b to the partial sum s (RFC 1071). An odd last byte counts as the high
// half of a word.
func sum16(s uint64, b []byte) uint64 {
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) > 0 {
		s += uint64(b[0]) << 8
	}
	return s
}

// Fold reduces a partial sum to 16 bits.
func Fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Checksum returns the Internet checksum (RFC 1071) of b, added to the partial sum s. It is zero for data that
// contain their own valid checksum.
func Checksum(s uint64, b []byte) uint16 { return ^Fold(sum16(s, b)) }

// PutChecksum stores the Internet checksum of m, added to s, at b. b is the checksum field inside m and must be zero.
func PutChecksum(b []byte, s uint64, m []byte) {
	binary.BigEndian.PutUint16(b, Checksum(s, m))
}

// PseudoSum returns the partial sum of the pseudo-header for n bytes of proto (RFC 768; RFC 8200 8.1).
func PseudoSum(src, dst *GID, proto byte, n int) uint64 {
	s := uint64(proto) + uint64(n)
	if src.Is4() {
		return sum16(sum16(s, src[12:]), dst[12:])
	}
	return sum16(sum16(s, src[:]), dst[:])
}

// UDPBody returns the ends of the IP header and of the UDP header of a frame, and the end of its UDP payload. ok is
// false unless the frame is a whole UDP datagram in IPv4 or in IPv6 without extension headers.
func UDPBody(frame []byte) (l4, body, end int, ok bool) {
	typ, l2, _ := EtherType(frame)
	ip := frame[l2:]
	if len(ip) < IPv4Len+UDPLen {
		return 0, 0, 0, false
	}
	switch typ {
	case TypeIPv4:
		l4, ok = l2+int(ip[0]&0xf)*4, ip[0]>>4 == 4 && ip[9] == ProtoUDP
	case TypeIPv6:
		l4, ok = l2+IPv6Len, ip[0]>>4 == 6 && ip[6] == ProtoUDP
	}
	if !ok || l4 < l2+IPv4Len || l4+UDPLen > len(frame) {
		return 0, 0, 0, false
	}
	end = l4 + int(binary.BigEndian.Uint16(frame[l4+4:]))
	return l4, l4 + UDPLen, end, end >= l4+UDPLen && end <= len(frame)
}
