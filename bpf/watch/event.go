package watch

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// Layout of struct event in watch.c.
const (
	eventPayload   = 10
	eventHeaderLen = 12
	eventKept      = 14
	eventHeaders   = 16
	headersRoom    = 68
	minHeaders     = 20 + bth.UDPLen
	eventTransport = eventHeaders + headersRoom
	eventSegment   = 8
)

// reasons names enum reason in watch.c.
var reasons = [...]string{"other EtherTypes", "ARP", "RoCE v1", "MPLS", "IP fragments", "TCP", "ICMP", "GRE", "IP in IP", "other IP protocols", "VXLAN",
	"GENEVE", "other UDP ports", "nested too deeply", "malformed"}

// packet assembles the packet of a record and returns it with its time.
func (s *Socket) packet(b []byte) (at int64, ip []byte, ok bool) {
	if len(b) < eventTransport {
		return 0, nil, false
	}
	ne := binary.NativeEndian
	headers, kept := int(ne.Uint16(b[eventHeaderLen:])), int(ne.Uint16(b[eventKept:]))
	if headers > headersRoom || headers < minHeaders || kept > len(b)-eventTransport {
		return 0, nil, false
	}
	ip = append(s.ip[:0], b[eventHeaders:eventHeaders+headers]...)
	ip = append(ip, b[eventTransport:eventTransport+kept]...)
	if n := ne.Uint16(b[eventPayload:]); n != 0 { // the headers of a super-frame become those of one of its datagrams
		l3 := ip[:headers-bth.UDPLen]
		inet.SetLengths(l3, ip[len(l3):], binary.BigEndian.Uint16(l3[4:])+ne.Uint16(b[eventSegment:]), int(n))
	}
	return int64(ne.Uint64(b)), ip, true
}
