package rocev2

import "encoding/binary"

// Internet protocol numbers and defaults.
const (
	protoICMP   = 1
	protoUDP    = 17
	protoICMPv6 = 58

	ipv4Len    = 20
	ipv4MaxLen = 60
	udpLen     = 8
	maxIPTotal = 65535
	defaultTTL = 64
	ipv4DF     = 0x4000
	ecnMask    = 0x03 // RFC 3168 section 5
	ecnECT0    = 0x02
	ecnCE      = 0x03
)

// ipHeader is what the receive path needs of an IPv4 or IPv6 header.
type ipHeader struct {
	v6       bool
	proto    byte
	ecn      byte
	ttl      byte
	src, dst GID
	l3       []byte // the IP header with its options
	payload  []byte // what follows, without Ethernet padding
}

// parseIPv4 reads the IPv4 packet b, which may be followed by Ethernet padding
// (RFC 791 3.1, RFC 1122 3.2.1).
func (h *ipHeader) parseIPv4(b []byte) rxReason {
	if len(b) < ipv4Len {
		return rxShort
	}
	hl := int(b[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || hl < ipv4Len {
		return rxIPHeader
	}
	if total < hl || total > len(b) {
		return rxShort
	}
	if checksum(0, b[:hl]) != 0 {
		return rxIPChecksum
	}
	// MF or a fragment offset: RoCEv2 packets carry DF (IBTA annex A17.4.5.1).
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return rxFragment
	}
	h.v6, h.proto, h.ecn, h.ttl = false, b[9], b[1]&ecnMask, b[8]
	h.src, h.dst = gidOf4(b[12:16]), gidOf4(b[16:20])
	h.l3, h.payload = b[:hl], b[hl:total]
	return rxOK
}

// putIPv4 writes an IPv4 header without options: DF set, length, ID and
// checksum zero.
func putIPv4(b []byte, tos, ttl, proto byte, src, dst *GID) {
	b = b[:ipv4Len]
	b[0], b[1] = 0x45, tos
	clear(b[2:6])
	binary.BigEndian.PutUint16(b[6:], ipv4DF)
	b[8], b[9] = ttl, proto
	clear(b[10:12])
	copy(b[12:16], src[12:])
	copy(b[16:20], dst[12:])
}

// sealIPv4 computes the header checksum of the IPv4 header h.
func sealIPv4(h []byte) {
	h[10], h[11] = 0, 0
	binary.BigEndian.PutUint16(h[10:], checksum(0, h))
}

// sum16 adds the 16-bit big-endian words of b to the partial sum s (RFC 1071);
// an odd last byte counts as the high half of a word.
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

// checksum is the Internet checksum (RFC 1071) of b on top of the partial sum s.
// Over data that contains its own checksum it is zero.
func checksum(s uint64, b []byte) uint16 { return ^fold(sum16(s, b)) }

// pseudoSum is the partial sum of the pseudo-header for n bytes of proto
// (RFC 768; RFC 8200 8.1).
func pseudoSum(src, dst *GID, proto byte, n int) uint64 {
	s := uint64(proto) + uint64(n)
	if src.is4() {
		return sum16(sum16(s, src[12:]), dst[12:])
	}
	return sum16(sum16(s, src[:]), dst[:])
}
