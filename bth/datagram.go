package bth

import (
	"encoding/binary"
	"net/netip"
)

// EtherTypes of the network layers that carry RoCEv2.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
)

// UDPLen is the length of a UDP header in bytes.
const UDPLen = 8

const (
	ipv4Len  = 20
	ipv6Len  = 40
	protoUDP = 17
)

// Datagram is an untrusted and possibly truncated IP packet to the UDP port of RoCEv2, for captures and observers.
type Datagram struct {
	Src, Dst netip.Addr
	TOS      uint8  // or traffic class; the low two bits are ECN (RFC 3168)
	ID       uint16 // IPv4 identification, 0 with IPv6
	UDP      int    // offset of the UDP header
	End      int    // of the packet, according to the IP header
	SPort    uint16
	UDPLen   int // according to the UDP header
}

// CE is the ECN codepoint "congestion experienced" (RFC 3168 5).
const CE = 3

// Marked reports whether d is marked "congestion experienced".
func (d *Datagram) Marked() bool { return d.TOS&3 == CE }

// EtherType returns the EtherType for the version of the IP packet b, 0 if b is not an IP packet.
func EtherType(b []byte) uint16 {
	if len(b) == 0 {
		return 0
	}
	switch b[0] >> 4 {
	case 4:
		return EtherTypeIPv4
	case 6:
		return EtherTypeIPv6
	}
	return 0
}

// ReadDatagram reads the IP and UDP headers at the start of b, a packet of this EtherType. It returns false for fragments and
// for packets that are not to a UDP port of RoCEv2 or MRC.
func ReadDatagram(etherType uint16, b []byte) (d Datagram, ok bool) {
	switch {
	case etherType == EtherTypeIPv4 && len(b) >= ipv4Len && b[0]>>4 == 4:
		fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0 // offset or more fragments
		d.UDP = int(b[0]&0xf) * 4
		if b[9] != protoUDP || fragment || d.UDP < ipv4Len {
			return d, false
		}
		d.TOS, d.ID = b[1], binary.BigEndian.Uint16(b[4:])
		d.End = int(binary.BigEndian.Uint16(b[2:]))
		d.Src, d.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	case etherType == EtherTypeIPv6 && len(b) >= ipv6Len && b[0]>>4 == 6:
		if b[6] != protoUDP {
			return d, false
		}
		d.UDP = ipv6Len
		d.TOS = b[0]<<4 | b[1]>>4
		d.End = ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
		d.Src, d.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	default:
		return d, false
	}
	if len(b) < d.UDP+UDPLen {
		return d, false
	}
	if !IsUDPPort(binary.BigEndian.Uint16(b[d.UDP+2:])) {
		return d, false
	}
	d.SPort = binary.BigEndian.Uint16(b[d.UDP:])
	d.UDPLen = int(binary.BigEndian.Uint16(b[d.UDP+4:]))
	return d, true
}
