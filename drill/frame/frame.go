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
	Ext     bth.XETH

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
	d, ok := bth.ReadDatagram(etherType, b[at:])
	if !ok {
		return nil, ErrOther
	}
	f.off[hdrIPv4] = at
	if etherType == bth.EtherTypeIPv6 {
		f.off[hdrIPv4], f.off[hdrIPv6] = 0, at
	}
	f.off[hdrUDP] = at + d.UDP
	f.end = min(at+d.End, len(b))
	return f, f.parseTransport(at + d.UDP + bth.UDPLen)
}

const etherVLAN = 0x8100

// parseTransport finds the headers from the BTH on, which begins at at.
func (f *Frame) parseTransport(at int) error {
	if f.end < at+bth.BTHLen+bth.ICRCLen {
		return ErrShort
	}
	f.off[hdrBTH], f.off[hdrICRC] = at, f.end-bth.ICRCLen
	f.Opcode = bth.Opcode(f.Bytes[at])
	pad := int(f.Bytes[at+1] >> 4 & 3)
	set := extensions(f.Opcode, f.Bytes[at+8])
	at += bth.BTHLen
	if set&bth.HdrXETH != 0 {
		n, err := f.Ext.Decode(f.Bytes[at : f.end-bth.ICRCLen])
		if err != nil {
			return fmt.Errorf("extension header: %w", err)
		}
		f.off[hdrExtension] = at
		at += n
	}
	for _, t := range transportHeaders {
		if set&t.bit == 0 {
			continue
		}
		if at+t.len > f.off[hdrICRC] {
			return ErrShort
		}
		f.off[t.hdr] = at
		at += t.len
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
	if x := extByName[name]; x != nil {
		ok = f.has(hdrExtension) && (x.flag == 0 || f.Ext.Flags&x.flag != 0)
		if ok {
			v = uint64(x.get(&f.Ext))
		}
		return v, ok
	}
	if name == "icrc" {
		return uint64(bth.GetICRC(f.Bytes[f.off[hdrICRC]:])), true
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
	return bth.CheckICRC(f.packet())
}

// packet returns the IP packet.
func (f *Frame) packet() []byte { return f.Bytes[f.off[hdrIPv4]+f.off[hdrIPv6] : f.end] }

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
	const protoUDP = 17
	sum := uint32(^checksum(src, 0)) + uint32(^checksum(dst, 0)) + protoUDP + uint32(len(datagram))
	return checksum(datagram, sum)
}
