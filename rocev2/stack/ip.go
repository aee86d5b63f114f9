package stack

import "encoding/binary"

// Header lengths, Internet protocol numbers and defaults.
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

	defaultTTL = 64
	ipv4DF     = 0x4000
)

// IPHeader is the part of an IPv4 or IPv6 header that the receive path needs.
type IPHeader struct {
	V6       bool
	Proto    byte
	ECN      byte
	TTL      byte
	Src, Dst GID
	L3       []byte // the IP header with its options
	Payload  []byte // without Ethernet padding
}

// ParseIPv4 reads the IPv4 packet b, which Ethernet padding may follow (RFC 791 3.1, RFC 1122 3.2.1).
func (h *IPHeader) ParseIPv4(b []byte) Drop {
	if len(b) < IPv4Len {
		return DropShort
	}
	hl := int(b[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || hl < IPv4Len {
		return DropIPHeader
	}
	if total < hl || total > len(b) {
		return DropShort
	}
	if Checksum(0, b[:hl]) != 0 {
		return DropIPChecksum
	}
	// MF or a fragment offset: RoCEv2 packets carry DF (IBTA annex A17.4.5.1).
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return DropFragment
	}
	h.V6, h.Proto, h.ECN, h.TTL = false, b[9], b[1]&ECNMask, b[8]
	h.Src, h.Dst = gidOf4(b[12:16]), gidOf4(b[16:20])
	h.L3, h.Payload = b[:hl], b[hl:total]
	return Accepted
}

// ParseIPv6 reads the IPv6 packet b, which Ethernet padding may follow (RFC 8200 section 3). Extension headers
// remain in the payload; apart from hop-by-hop options before MLD the stack drops packets that have any.
func (h *IPHeader) ParseIPv6(b []byte) Drop {
	if len(b) < IPv6Len {
		return DropShort
	}
	if b[0]>>4 != 6 {
		return DropIPHeader
	}
	end := IPv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return DropShort
	}
	h.V6, h.Proto, h.ECN, h.TTL = true, b[6], b[1]>>4&ECNMask, b[7]
	h.Src, h.Dst = GID(b[8:24]), GID(b[24:40])
	// IPv4-mapped addresses are not valid on the wire (RFC 4291 2.5.5.2). The stack would take one for the IPv4
	// address.
	if h.Src.is4() || h.Dst.is4() {
		return DropIPHeader
	}
	h.L3, h.Payload = b[:IPv6Len], b[IPv6Len:end]
	return Accepted
}

// TrafficClass returns the DSCP and ECN bits.
func (h *IPHeader) TrafficClass() uint8 {
	if h.V6 {
		return h.L3[0]<<4 | h.L3[1]>>4
	}
	return h.L3[1]
}

// PutIPv4 writes an IPv4 header without options. DF is set; length, ID and checksum are zero.
func PutIPv4(b []byte, tos, ttl, proto byte, src, dst *GID) {
	b = b[:IPv4Len]
	b[0], b[1] = 0x45, tos
	clear(b[2:6])
	binary.BigEndian.PutUint16(b[6:], ipv4DF)
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

// fold reduces a partial sum to 16 bits.
func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Checksum returns the Internet checksum (RFC 1071) of b, added to the partial sum s. It is zero for data that
// contain their own valid checksum.
func Checksum(s uint64, b []byte) uint16 { return ^fold(sum16(s, b)) }

// PutChecksum stores the Internet checksum of m, added to s, at b. b is the checksum field inside m and must be zero.
func PutChecksum(b []byte, s uint64, m []byte) {
	binary.BigEndian.PutUint16(b, Checksum(s, m))
}

// PseudoSum returns the partial sum of the pseudo-header for n bytes of proto (RFC 768; RFC 8200 8.1).
func PseudoSum(src, dst *GID, proto byte, n int) uint64 {
	s := uint64(proto) + uint64(n)
	if src.is4() {
		return sum16(sum16(s, src[12:]), dst[12:])
	}
	return sum16(sum16(s, src[:]), dst[:])
}
