package pcapng

import (
	"encoding/binary"
	"fmt"

	"roced.io/roced/bth"
)

// EtherTypes of VLAN tags.
const (
	typeVLAN  = 0x8100
	typeQinQ  = 0x88a8
	typeVLAN2 = 0x9100 // QinQ before the standard
)

// Network returns the offset of the network header in a frame with link type link, and its EtherType. The EtherType
// is 0 if the frame is too short. Network appends the VLAN tags to tags.
func (link LinkType) Network(b []byte, tags *[]uint16) (off int, etherType uint16, err error) {
	typeAt := 0
	switch link {
	case LinkRaw, LinkIPv4, LinkIPv6, linkRawBSD, linkRawOpen:
		return 0, bth.EtherType(b), nil
	case LinkNull, LinkLoop: // the protocol family has a number of its own on each system
		off = min(4, len(b))
		return off, bth.EtherType(b[off:]), nil
	case LinkEthernet:
		typeAt, off = 12, 14
	case LinkSLL:
		typeAt, off = 14, 16
	case LinkSLL2:
		typeAt, off = 0, 20
	default:
		return 0, 0, fmt.Errorf("%v is not supported", link)
	}
	if len(b) < off {
		return 0, 0, nil
	}
	etherType = binary.BigEndian.Uint16(b[typeAt:])
	for etherType == typeVLAN || etherType == typeQinQ || etherType == typeVLAN2 {
		if len(b) < off+4 {
			return 0, 0, nil
		}
		*tags = append(*tags, binary.BigEndian.Uint16(b[off:]))
		etherType = binary.BigEndian.Uint16(b[off+2:])
		off += 4
	}
	return off, etherType, nil
}
