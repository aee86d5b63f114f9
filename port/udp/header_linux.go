package udp

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/port/link"
)

// Lengths of headers.
const (
	ethLen  = 14
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = bth.UDPLen
	maxHdr  = ethLen + ipv6Len + udpLen

	protoUDP = 17
)

// header is a template of the headers of datagrams to an address.
type header struct {
	b   [maxHdr]byte
	len int
	v4  bool
}

func (h *header) init(mac inet.MAC, dst netip.Addr, port uint16) {
	h.v4 = dst.Is4()
	copy(h.b[:], mac[:])
	ip := h.b[ethLen:]
	if h.v4 {
		h.len = ethLen + ipv4Len + udpLen
		binary.BigEndian.PutUint16(h.b[12:], bth.EtherTypeIPv4)
		copy(ip, []byte{0: 0x45, 6: 0x40, 8: hopLimit, 9: protoUDP}) // DF, as in RoCEv2
		copy(ip[16:], dst.AsSlice())
	} else {
		h.len = maxHdr
		binary.BigEndian.PutUint16(h.b[12:], bth.EtherTypeIPv6)
		copy(ip, []byte{0: 0x60, 6: protoUDP, 7: hopLimit})
		copy(ip[24:], dst.AsSlice())
	}
	binary.BigEndian.PutUint16(h.b[h.len-udpLen+2:], port)
}

// put writes the headers of a datagram or super-frame with size bytes of payload.
func (h *header) put(frame []byte, from *name, tos uint8, size int) {
	copy(frame, h.b[:h.len])
	ip := frame[ethLen:]
	src := from.addr(h.v4)
	mac := frame[6:12] // as in link.SocketMAC
	mac[0], mac[1] = 2, 0
	copy(mac[2:], src[len(src)-4:])
	if h.v4 {
		ip[1] = tos
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Len+udpLen+size))
		copy(ip[12:16], src)
		inet.PutChecksum(ip[10:], 0, ip[:ipv4Len])
	} else {
		ip[0], ip[1] = 0x60|tos>>4, tos<<4
		binary.BigEndian.PutUint16(ip[4:], uint16(udpLen+size))
		copy(ip[8:24], src)
	}
	udp := frame[h.len-udpLen:]
	binary.BigEndian.PutUint16(udp, from.port())
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen+size))
}

// outgoing has the fields of the headers of a frame to send.
type outgoing struct {
	src, dst inet.GID
	v4       bool
	group    bool // dst is a multicast group
	tos, hop uint8
	id       uint16 // IP ID that the ICRC covers, IPv4 only
	port     uint16 // source
	len      int    // of the headers
}

// read parses the headers of a frame. It returns false if the frame is not a datagram to the port, for example after a fault
// rule has changed it.
func (o *outgoing) read(b []byte, port uint16) bool {
	if len(b) < ethLen+ipv4Len+udpLen {
		return false
	}
	ip := b[ethLen:]
	switch {
	case binary.BigEndian.Uint16(b[12:]) == bth.EtherTypeIPv4 && ip[0] == 0x45 && ip[9] == protoUDP:
		o.id = binary.BigEndian.Uint16(ip[4:])
		o.v4, o.len, o.tos, o.hop = true, ethLen+ipv4Len+udpLen, ip[1], ip[8]
		o.src = inet.GID{10: 0xff, 11: 0xff, 12: ip[12], 13: ip[13], 14: ip[14], 15: ip[15]}
		o.dst = inet.GID{10: 0xff, 11: 0xff, 12: ip[16], 13: ip[17], 14: ip[18], 15: ip[19]}
	case binary.BigEndian.Uint16(b[12:]) == bth.EtherTypeIPv6 && ip[0]>>4 == 6 && ip[6] == protoUDP && len(b) >= maxHdr:
		o.v4, o.len, o.tos, o.hop = false, maxHdr, ip[0]<<4|ip[1]>>4, ip[7]
		o.src, o.dst = inet.GID(ip[8:24]), inet.GID(ip[24:40])
	default:
		return false
	}
	o.group = o.v4 && o.dst[12]>>4 == 0xe || o.dst[0] == 0xff
	udp := b[o.len-udpLen:]
	o.port = binary.BigEndian.Uint16(udp)
	return binary.BigEndian.Uint16(udp[2:]) == port
}

// trimmed reports whether f is a packet of MRC as switches trim it, such as by a fault rule.
func (o *outgoing) trimmed(f *link.Frame) bool {
	return f.SegSize == 0 && bth.TrimmedLen(f.Bufs[0][o.len:]) == f.Len-o.len
}
