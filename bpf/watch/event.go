package watch

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// Layout of struct event in watch.c.
const (
	eventSegment   = 8
	eventPayload   = 10
	eventIPLen     = 12
	eventKept      = 14
	eventIP        = 16
	minIPLen       = 20
	maxIPLen       = 60
	eventUDP       = eventIP + maxIPLen
	eventTransport = eventUDP + bth.UDPLen
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
	ipLen, kept := int(ne.Uint16(b[eventIPLen:])), int(ne.Uint16(b[eventKept:]))
	if ipLen > maxIPLen || ipLen < minIPLen || kept > len(b)-eventTransport {
		return 0, nil, false
	}
	ip = append(s.ip[:0], b[eventIP:eventIP+ipLen]...)
	ip = append(ip, b[eventUDP:eventTransport+kept]...)
	if n := ne.Uint16(b[eventPayload:]); n != 0 { // the headers of a super-frame become those of one of its datagrams
		l3 := ip[:ipLen]
		inet.SetLengths(l3, ip[len(l3):], binary.BigEndian.Uint16(l3[4:])+ne.Uint16(b[eventSegment:]), int(n))
	}
	return int64(ne.Uint64(b)), ip, true
}
