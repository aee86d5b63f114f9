package stack

import (
	"encoding/binary"

	"roced.io/roced/bth/inet"
)

const defaultTTL = 64

// IPHeader is the part of an IPv4 or IPv6 header that the receive path needs.
type IPHeader struct {
	V6       bool
	Proto    byte
	ECN      byte
	TTL      byte
	Src, Dst inet.GID
	L3       []byte // the IP header with its options
	Payload  []byte // without Ethernet padding
}

// ParseIPv4 reads the IPv4 packet b, which Ethernet padding may follow (RFC 791 3.1, RFC 1122 3.2.1).
func (h *IPHeader) ParseIPv4(b []byte) Drop {
	if len(b) < inet.IPv4Len {
		return DropShort
	}
	hl := int(b[0]&0xf) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if b[0]>>4 != 4 || hl < inet.IPv4Len {
		return DropIPHeader
	}
	if total < hl || total > len(b) {
		return DropShort
	}
	if inet.Checksum(0, b[:hl]) != 0 {
		return DropIPChecksum
	}
	// MF or a fragment offset: RoCEv2 packets carry DF (IBTA annex A17.4.5.1).
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return DropFragment
	}
	h.V6, h.Proto, h.ECN, h.TTL = false, b[9], b[1]&inet.ECNMask, b[8]
	h.Src, h.Dst = inet.GIDOf4(b[12:16]), inet.GIDOf4(b[16:20])
	h.L3, h.Payload = b[:hl], b[hl:total]
	return Accepted
}

// ParseIPv6 reads the IPv6 packet b, which Ethernet padding may follow (RFC 8200 section 3). Extension headers
// remain in the payload; apart from hop-by-hop options before MLD the stack drops packets that have any.
func (h *IPHeader) ParseIPv6(b []byte) Drop {
	if len(b) < inet.IPv6Len {
		return DropShort
	}
	if b[0]>>4 != 6 {
		return DropIPHeader
	}
	end := inet.IPv6Len + int(binary.BigEndian.Uint16(b[4:]))
	if end > len(b) {
		return DropShort
	}
	h.V6, h.Proto, h.ECN, h.TTL = true, b[6], b[1]>>4&inet.ECNMask, b[7]
	h.Src, h.Dst = inet.GID(b[8:24]), inet.GID(b[24:40])
	// IPv4-mapped addresses are not valid on the wire (RFC 4291 2.5.5.2). The stack would take one for the IPv4
	// address.
	if h.Src.Is4() || h.Dst.Is4() {
		return DropIPHeader
	}
	h.L3, h.Payload = b[:inet.IPv6Len], b[inet.IPv6Len:end]
	return Accepted
}

// TrafficClass returns the DSCP and ECN bits.
func (h *IPHeader) TrafficClass() uint8 {
	if h.V6 {
		return h.L3[0]<<4 | h.L3[1]>>4
	}
	return h.L3[1]
}
