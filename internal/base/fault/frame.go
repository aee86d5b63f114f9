package fault

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
)

const (
	ethLen   = 14
	ipv4Len  = 20
	ipv6Len  = 40
	udpLen   = 8
	protoUDP = 17

	ethTypeIPv4 = 0x0800
	ethTypeIPv6 = 0x86dd

	vlanLen     = 4
	ethTypeVLAN = 0x8100 // IEEE 802.1Q
	ethTypeQinQ = 0x88a8 // IEEE 802.1ad
)

// kind distinguishes the sequences of PSNs to one queue pair.
type kind uint8

const (
	kindRequest  kind = iota
	kindReadResp      // with PSNs of the range of the READ request
	kindAck           // ACKNOWLEDGE, ATOMIC ACKNOWLEDGE, and packets of MRC that use no PSN
	kindCNP
)

// flowKey identifies a flow; see the package comment.
type flowKey struct {
	dir  int
	kind kind
	qpn  bth.QPN
	src  netip.Addr
	dst  netip.Addr
}

// peer returns the address of the remote end.
func (k *flowKey) peer() netip.Addr {
	if k.dir == tx {
		return k.dst
	}
	return k.src
}

// view has the fields of a frame that rules need.
type view struct {
	l3   int // offset of the IP header, 0 for none
	v6   bool
	roce bool
	bth  int // offset of the BTH
	end  int // of the UDP datagram
	op   bth.Opcode
	psn  bth.PSN
	key  flowKey
	nth  int // number of transmissions of this PSN seen, 0 if not recorded
	base bth.PSN
	nak  bool
	port uint16 // UDP source port
}

// parse parses a frame of direction dir.
func (v *view) parse(dir int, frame []byte) {
	*v = view{end: len(frame)}
	v.key.dir = dir
	if len(frame) < ethLen {
		return
	}
	l3, l4 := ethLen, 0
	kind := binary.BigEndian.Uint16(frame[12:])
	if (kind == ethTypeVLAN || kind == ethTypeQinQ) && len(frame) >= ethLen+vlanLen {
		l3, kind = ethLen+vlanLen, binary.BigEndian.Uint16(frame[ethLen+2:])
	}
	switch kind {
	case ethTypeIPv4:
		l4 = v.parseIPv4(l3, frame[l3:])
	case ethTypeIPv6:
		l4 = v.parseIPv6(l3, frame[l3:])
	}
	if l4 == 0 || l3+l4+udpLen > len(frame) {
		return
	}
	udp := frame[l3+l4:]
	body := int(binary.BigEndian.Uint16(udp[4:])) - udpLen
	if !bth.IsUDPPort(binary.BigEndian.Uint16(udp[2:])) || body < bth.BTHLen+bth.ICRCLen || body > len(udp)-udpLen {
		return
	}
	v.port = binary.BigEndian.Uint16(udp)
	v.bth = l3 + l4 + udpLen
	v.end = v.bth + body
	v.parseBTH(frame[v.bth:v.end])
}

// parseIPv4 returns the length of an IPv4 header that UDP follows, else 0.
func (v *view) parseIPv4(l3 int, ip []byte) int {
	if len(ip) < ipv4Len || ip[0]>>4 != 4 {
		return 0
	}
	n := int(ip[0]&0xf) * 4
	if n < ipv4Len || n > len(ip) {
		return 0
	}
	v.l3 = l3
	v.key.src, v.key.dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	const fragment = 0x3fff // MF and offset
	if ip[9] != protoUDP || binary.BigEndian.Uint16(ip[6:])&fragment != 0 {
		return 0
	}
	return n
}

// parseIPv6 returns the length of an IPv6 header that UDP follows, else 0.
func (v *view) parseIPv6(l3 int, ip []byte) int {
	if len(ip) < ipv6Len || ip[0]>>4 != 6 {
		return 0
	}
	v.l3, v.v6 = l3, true
	v.key.src, v.key.dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	if ip[6] != protoUDP {
		return 0
	}
	return ipv6Len
}

func (v *view) parseBTH(b []byte) {
	v.roce = true
	v.op = bth.Opcode(b[0])
	v.key.kind = kindOf(v.op)
	v.key.qpn = bth.QPN(binary.BigEndian.Uint32(b[4:]) & maxPSN)
	v.psn = bth.MakePSN(binary.BigEndian.Uint32(b[8:]))
	v.nak = v.op.IsAck() && !syndromeOf(v.op, b).IsACK()
}

// syndromeOf returns the syndrome of the acknowledgement b. It is that of an ACK if b ends before the AETH.
func syndromeOf(op bth.Opcode, b []byte) bth.Syndrome {
	at := bth.BTHLen
	if op.IsExt() {
		at += 4 * int(b[at]&0xf)
	}
	if at >= len(b) {
		return bth.SyndromeACK
	}
	return bth.Syndrome(b[at])
}

func kindOf(op bth.Opcode) kind {
	switch {
	case op.IsCNP():
		return kindCNP
	case op.IsReadResponse():
		return kindReadResp
	case op.IsResponse(), op.IsProbe(), op.IsEndpoint():
		return kindAck
	}
	return kindRequest
}

// Sequence returns the PSN sequence of an opcode. A queue pair receives several, such as requests and responses, each
// with PSNs of its own.
func Sequence(op bth.Opcode) uint8 { return uint8(kindOf(op)) }

const classNames = "request, response, ack, nak, send, write, read, readresp, atomic, cnp, any"

// classes are the values of op=.
var classes = map[string]func(*view) bool{
	"":         func(*view) bool { return true },
	"any":      func(*view) bool { return true },
	"request":  func(v *view) bool { return v.op.IsRequest() },
	"response": func(v *view) bool { return v.op.IsResponse() },
	"ack":      func(v *view) bool { return v.op.IsAck() },
	"nak":      func(v *view) bool { return v.nak },
	"send":     func(v *view) bool { return v.op.IsSend() },
	"write":    func(v *view) bool { return v.op.IsWrite() },
	"read":     func(v *view) bool { return v.op.IsReadRequest() },
	"readresp": func(v *view) bool { return v.op.IsReadResponse() },
	"atomic":   func(v *view) bool { return v.op.IsAtomic() },
	"cnp":      func(v *view) bool { return v.op.IsCNP() },
}

// Names reports whether the class of r contains an opcode. The class nak also requires the syndrome of a NAK.
func (r *Rule) Names(op bth.Opcode) bool {
	return classes[r.Op](&view{op: op, nak: op.IsAck()})
}

// covered returns the part of the frame to corrupt: from the BTH to the ICRC; for a frame that is not RoCEv2, everything
// after the Ethernet header.
func (v *view) covered(frame []byte) []byte {
	from := ethLen
	if v.roce {
		from = v.bth
	}
	to := min(v.end, len(frame))
	if from >= to {
		return nil
	}
	return frame[from:to]
}

// markCE sets Congestion Experienced (RFC 3168 section 5), even in a frame that is not ECN-capable, and updates the IPv4
// checksum. It returns false if the frame has no IP header.
func (v *view) markCE(frame []byte) bool {
	switch {
	case v.l3 == 0:
		return false
	case v.v6 && len(frame) >= v.l3+ipv6Len:
		frame[v.l3+1] |= 0x30 // low bits of the traffic class
		return true
	case v.v6 || len(frame) < v.l3+ipv4Len:
		return false
	}
	ip := frame[v.l3:]
	n := int(ip[0]&0xf) * 4
	if n > len(ip) {
		return false
	}
	setIPv4Word(ip, 0, binary.BigEndian.Uint16(ip)|0x03)
	return true
}

// setIPv4Word sets the 16-bit word at an offset of an IPv4 header, and updates the checksum by the change (RFC 1624).
func setIPv4Word(ip []byte, at int, word uint16) {
	old := uint32(binary.BigEndian.Uint16(ip[at:]))
	binary.BigEndian.PutUint16(ip[at:], word)
	sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + (^old & 0xffff) + uint32(word)
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}
