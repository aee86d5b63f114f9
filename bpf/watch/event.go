package watch

import (
	"encoding/binary"

	"roced.io/roced/bth"
)

// Layout of struct event in watch.c.
const (
	eventPayload   = 10
	eventHeaderLen = 12
	eventKept      = 14
	eventHeaders   = 16
	headersRoom    = 68
	eventTransport = eventHeaders + headersRoom
	eventSegment   = 8
)

// packet assembles the packet of a record and returns it with its time.
func (s *Socket) packet(b []byte) (at int64, ip []byte, ok bool) {
	if len(b) < eventTransport {
		return 0, nil, false
	}
	ne := binary.NativeEndian
	headers, kept := int(ne.Uint16(b[eventHeaderLen:])), int(ne.Uint16(b[eventKept:]))
	if headers > headersRoom || headers < bth.UDPLen || kept > len(b)-eventTransport {
		return 0, nil, false
	}
	ip = append(s.ip[:0], b[eventHeaders:eventHeaders+headers]...)
	ip = append(ip, b[eventTransport:eventTransport+kept]...)
	if n := ne.Uint16(b[eventPayload:]); n != 0 {
		setLengths(ip, headers, int(n), ne.Uint16(b[eventSegment:]))
	}
	return int64(ne.Uint64(b)), ip, true
}

// setLengths converts the headers of a super-frame to those of its i-th datagram, which has n bytes of payload.
func setLengths(ip []byte, headers, n int, i uint16) {
	be := binary.BigEndian
	be.PutUint16(ip[headers-bth.UDPLen+4:], uint16(n+bth.UDPLen))
	if bth.EtherType(ip) == bth.EtherTypeIPv4 {
		be.PutUint16(ip[2:], uint16(headers+n))
		be.PutUint16(ip[4:], be.Uint16(ip[4:])+i)
		return
	}
	be.PutUint16(ip[4:], uint16(n+bth.UDPLen))
}
