package decode

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"roced/bth"
	"roced/internal/pcapng"
)

// EtherTypes.
const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	typeVLAN2 = 0x9100 // QinQ before the standard
)

const (
	protoUDP = 17
	udpLen   = 8
)

// linkHeader returns the offset of the network header in a frame and its
// EtherType, 0 when the frame is too short. Ids of VLAN tags are appended to vlan.
func linkHeader(link pcapng.LinkType, b []byte, vlan *[]uint16) (off int, etherType uint16, err error) {
	typeAt := 0
	switch link {
	case pcapng.LinkRaw, pcapng.LinkIPv4, pcapng.LinkIPv6:
		return 0, rawType(b), nil
	case pcapng.LinkEthernet:
		typeAt, off = 12, 14
	case pcapng.LinkSLL:
		typeAt, off = 14, 16
	case pcapng.LinkSLL2:
		typeAt, off = 0, 20
	default:
		return 0, 0, fmt.Errorf("link type %d is not supported", link)
	}
	if len(b) < off {
		return 0, 0, nil
	}
	etherType = binary.BigEndian.Uint16(b[typeAt:])
	for etherType == typeVLAN || etherType == typeQinQ || etherType == typeVLAN2 {
		if len(b) < off+4 {
			return 0, 0, nil
		}
		*vlan = append(*vlan, binary.BigEndian.Uint16(b[off:])&0xfff)
		etherType = binary.BigEndian.Uint16(b[off+2:])
		off += 4
	}
	return off, etherType, nil
}

func rawType(b []byte) uint16 {
	if len(b) == 0 {
		return 0
	}
	switch b[0] >> 4 {
	case 4:
		return typeIPv4
	case 6:
		return typeIPv6
	}
	return 0
}

// datagram is an IP packet to the UDP port of RoCEv2.
type datagram struct {
	src, dst netip.Addr
	tos      uint8 // or traffic class
	udp      int   // offset of the UDP header
	end      int   // of the packet, as the IP header tells it
	sport    uint16
	udpLen   int // as the UDP header tells it
}

// parseIP reads the IP and UDP headers at the start of b. It returns false for
// what is not to the UDP port of RoCEv2, and for fragments.
func parseIP(etherType uint16, b []byte) (d datagram, ok bool) {
	switch {
	case etherType == typeIPv4 && len(b) >= 20 && b[0]>>4 == 4:
		fragment := binary.BigEndian.Uint16(b[6:])&0x3fff != 0 // offset or more fragments
		d.udp = int(b[0]&0xf) * 4
		if b[9] != protoUDP || fragment || d.udp < 20 {
			return d, false
		}
		d.tos = b[1]
		d.end = int(binary.BigEndian.Uint16(b[2:]))
		d.src, d.dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	case etherType == typeIPv6 && len(b) >= 40 && b[0]>>4 == 6:
		if b[6] != protoUDP {
			return d, false
		}
		d.udp = 40
		d.tos = b[0]<<4 | b[1]>>4
		d.end = 40 + int(binary.BigEndian.Uint16(b[4:]))
		d.src, d.dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	default:
		return d, false
	}
	if len(b) < d.udp+udpLen || binary.BigEndian.Uint16(b[d.udp+2:]) != bth.UDPPort {
		return d, false
	}
	d.sport = binary.BigEndian.Uint16(b[d.udp:])
	d.udpLen = int(binary.BigEndian.Uint16(b[d.udp+4:]))
	return d, true
}
