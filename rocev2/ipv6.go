package rocev2

import "encoding/binary"

const ipv6Len = 40

// parseIPv6 reads the IPv6 packet b, which may be followed by Ethernet padding
// (RFC 8200 section 3). Extension headers are left in the payload: their
// protocol numbers are none that we take, so such packets are dropped.
func (h *ipHeader) parseIPv6(b []byte) rxReason {
	if len(b) < ipv6Len {
		return rxShort
	}
	if b[0]>>4 != 6 {
		return rxIPHeader
	}
	end := ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return rxShort
	}
	h.v6, h.proto, h.ecn, h.ttl = true, b[6], b[1]>>4&ecnMask, b[7]
	h.src, h.dst = GID(b[8:24]), GID(b[24:40])
	// An IPv4-mapped address never stands on the wire (RFC 4291 2.5.5.2); it
	// would be mistaken for the IPv4 address.
	if h.src.is4() || h.dst.is4() {
		return rxIPHeader
	}
	h.l3, h.payload = b[:ipv6Len], b[ipv6Len:end]
	return rxOK
}

// putIPv6 writes an IPv6 header with flow label 0, as rxe does, and length zero.
func putIPv6(b []byte, tclass, hop, next byte, src, dst *GID) {
	b = b[:ipv6Len]
	b[0], b[1], b[2], b[3] = 0x60|tclass>>4, tclass<<4, 0, 0
	b[4], b[5] = 0, 0
	b[6], b[7] = next, hop
	copy(b[8:24], src[:])
	copy(b[24:40], dst[:])
}
