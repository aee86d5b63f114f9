package fault

import (
	"encoding/binary"

	"roced.io/roced/bth"
)

// trim cuts a WRITE of MRC behind its METH and TSETH, sets its DSCP and adapts the lengths of IP and UDP, as switches do. An
// ICRC is not left. The UDP checksum becomes 0, which means none. trim returns false for other packets, and for a packet
// that has been cut already.
func (v *view) trim(frame *[]byte, dscp uint8) bool {
	if !v.roce || len(*frame) < v.bth {
		return false
	}
	n := bth.TrimmedLen((*frame)[v.bth:])
	if end := min(v.end, len(*frame)); n == 0 || v.bth+n >= end {
		return false
	}
	b := (*frame)[:v.bth+n]
	*frame = b
	udp := b[v.bth-udpLen:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	ip := b[v.l3:]
	if v.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ipv6Len))
		ip[0], ip[1] = ip[0]&0xf0|dscp>>2, dscp<<6|ip[1]&0x3f
		return true
	}
	setIPv4Word(ip, 2, uint16(len(ip)))
	setIPv4Word(ip, 0, uint16(ip[0])<<8|uint16(dscp<<2|ip[1]&3))
	return true
}
