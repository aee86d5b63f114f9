package frame

import (
	"encoding/binary"
	"errors"
	"fmt"

	"roced.io/roced/bth"
)

// Frame is a received or built RoCEv2 frame.
type Frame struct {
	Bytes   []byte // from the Ethernet header on, without frame check sequence
	Opcode  bth.Opcode
	Payload []byte // a view, without pad

	off [headers]int // offset of each header, 0 if the frame does not have it; that of Ethernet is always 0
	end int          // end of the IP packet
}

// Errors of Parse.
var (
	// ErrOther says that a frame is not RoCEv2: ARP, neighbour discovery, ICMP, other UDP ports.
	ErrOther = errors.New("not a RoCEv2 frame")
	// ErrShort says that a frame ends inside its headers.
	ErrShort = errors.New("frame ends inside its headers")
)

// Parse reads the headers of a frame. It checks only that they fit into the frame: lengths, checksums, pad and ICRC may be
// wrong, and a test may expect so. b becomes part of the result.
func Parse(b []byte) (*Frame, error) {
	f := &Frame{Bytes: b}
	at, etherType := ethernetLen, uint16(0)
	if len(b) < ethernetLen {
		return nil, ErrOther
	}
	if etherType = binary.BigEndian.Uint16(b[12:]); etherType == etherVLAN {
		if len(b) < ethernetLen+vlanLen {
			return nil, ErrOther
		}
		f.off[hdrVLAN] = at
		etherType = binary.BigEndian.Uint16(b[16:])
		at += vlanLen
	}
	if !f.parseIP(etherType, at) {
		return nil, ErrOther
	}
	return f, f.parseTransport(f.off[hdrUDP] + udpLen)
}

// EtherTypes, IP protocols and UDP ports.
const (
	etherVLAN = 0x8100
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	protoUDP  = 17
	portRoCE  = 4791
	portMRC   = 4971
)

// parseIP finds the IP and UDP headers from at on. It returns false if the packet is a fragment or not to a port of RoCEv2 or MRC.
func (f *Frame) parseIP(etherType uint16, at int) bool {
	h, n, rest := hdrIPv4, ipv4Len, len(f.Bytes)-at
	if etherType == etherIPv6 {
		h, n = hdrIPv6, ipv6Len
	}
	if etherType != etherIPv4 && etherType != etherIPv6 || rest < n {
		return false
	}
	f.off[h] = at
	get := func(name string) int {
		v, _ := f.Get(name)
		return int(v)
	}
	version, end := 6, n+get("ip.len")
	if h == hdrIPv4 {
		version, end, n = 4, get("ip.len"), 4*get("ip.ihl")
		if n < ipv4Len || get("ip.frag") != 0 || get("ip.flags")&1 != 0 {
			return false
		}
	}
	if get("ip.version") != version || get("ip.proto") != protoUDP || rest < n+udpLen {
		return false
	}
	f.off[hdrUDP], f.end = at+n, min(at+end, len(f.Bytes))
	return get("udp.dport") == portRoCE || get("udp.dport") == portMRC
}

// parseTransport finds the headers from the BTH on, which begins at at.
func (f *Frame) parseTransport(at int) error {
	if f.end < at+bthLen+icrcLen {
		return ErrShort
	}
	f.off[hdrBTH], f.off[hdrICRC] = at, f.end-icrcLen
	f.Opcode = bth.Opcode(f.Bytes[at])
	pad := int(f.Bytes[at+1] >> 4 & 3)
	set := extensions(f.Opcode, f.Bytes[at+8])
	at += bthLen
	if set&bth.HdrXETH != 0 {
		end, err := f.parseExtension(at)
		if err != nil {
			return err
		}
		at = end
	}
	for _, t := range transportHeaders {
		if set&t.bit == 0 {
			continue
		}
		if at+lengths[t.hdr] > f.off[hdrICRC] {
			return ErrShort
		}
		f.off[t.hdr] = at
		at += lengths[t.hdr]
	}
	f.off[hdrPayload] = at
	f.Payload = f.Bytes[at:max(at, f.off[hdrICRC]-pad)]
	f.findMAD()
	return nil
}

// has reports whether the frame has the header.
func (f *Frame) has(h header) bool { return h == hdrEthernet || f.off[h] != 0 }

// field returns the field of this name in a header that the frame has.
func (f *Frame) field(name string) *Field {
	for _, x := range byName[name] {
		if f.has(x.hdr) {
			return x
		}
	}
	return nil
}

// Get returns the value of a field. ok is false if the frame does not have the field.
func (f *Frame) Get(name string) (v uint64, ok bool) {
	if name == "icrc" {
		return uint64(f.wireICRC()), true
	}
	x := f.field(name)
	if x == nil || x.bits > 64 {
		return 0, false
	}
	return x.get(f.Bytes[f.off[x.hdr]:]), true
}

// Address returns ip.src or ip.dst as 4 or 16 bytes.
func (f *Frame) Address(name string) ([]byte, bool) {
	x := f.field(name)
	if x == nil || x.bits%32 != 0 {
		return nil, false
	}
	at := f.off[x.hdr] + x.bit/8
	return f.Bytes[at : at+x.bits/8], true
}

// PSN returns the packet sequence number.
func (f *Frame) PSN() bth.PSN {
	v, _ := f.Get("psn")
	return bth.MakePSN(uint32(v))
}

// Reserved returns the name of a header whose reserved bits are not 0, empty if there is none. MRC has names for two bits of
// the BTH.
func (f *Frame) Reserved() string {
	first, _ := f.Get("bth.res6")
	second, _ := f.Get("bth.res7")
	if f.Opcode.IsMRC() {
		second &^= 0x30
	}
	if first|second != 0 {
		return "BTH"
	}
	for i := range reserved {
		x := &reserved[i]
		if !f.has(x.hdr) || x.get(f.Bytes[f.off[x.hdr]:]) == 0 {
			continue
		}
		switch x.hdr {
		case hdrDETH:
			return "DETH"
		case hdrFETH:
			return "FETH"
		}
		return "extension header"
	}
	return ""
}

// Check reports an error of the frame that no device may send: a wrong IPv4 checksum, UDP checksum or length, pad count, or
// ICRC.
func (f *Frame) Check() error {
	if at := f.off[hdrIPv4]; at != 0 {
		if sum := checksum(f.Bytes[at:f.off[hdrUDP]], 0); sum != 0 {
			return errors.New("wrong IPv4 header checksum")
		}
	}
	if n, _ := f.Get("udp.len"); int(n) != f.end-f.off[hdrUDP] {
		return fmt.Errorf("UDP length %d of a datagram of %d bytes", n, f.end-f.off[hdrUDP])
	}
	if sum, _ := f.Get("udp.csum"); sum != 0 && f.udpSum() != 0 {
		return fmt.Errorf("wrong UDP checksum %#04x", sum)
	}
	if (f.end-f.off[hdrBTH])%4 != 0 {
		return errors.New("the packet is not a multiple of four bytes: wrong pad")
	}
	return f.CheckICRC()
}

// CheckICRC reports a wrong ICRC.
func (f *Frame) CheckICRC() error {
	if got, want := f.wireICRC(), f.icrc(); got != want {
		return fmt.Errorf("wrong ICRC %#08x, the packet has %#08x", got, want)
	}
	return nil
}

// checksum returns the Internet checksum of b, which begins with sum (RFC 1071).
func checksum(b []byte, sum uint32) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// udpSum returns the UDP checksum over the pseudo header and the datagram as it is: 0 if the datagram has the right one.
func (f *Frame) udpSum() uint16 {
	src, _ := f.Address("ip.src")
	dst, _ := f.Address("ip.dst")
	datagram := f.Bytes[f.off[hdrUDP]:f.end]
	sum := uint32(^checksum(src, 0)) + uint32(^checksum(dst, 0)) + protoUDP + uint32(len(datagram))
	return checksum(datagram, sum)
}
