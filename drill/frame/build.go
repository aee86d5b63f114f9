package frame

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
)

// Set is a field with the value that a frame is to have.
type Set struct {
	Name  string
	Value uint64
	// Bytes replaces Value for ip.src and ip.dst.
	Bytes []byte
}

// Spec describes a frame to build. The builder fills in every field that Fields does not name.
type Spec struct {
	SrcMAC, DstMAC [6]byte
	Src, Dst       netip.Addr // both IPv4 or both IPv6
	VLAN           bool       // the frame has a VLAN tag
	Opcode         bth.Opcode
	Fields         []Set
	Payload        []byte
	Options        []byte // IPv4 options, a multiple of four bytes
	Padding        []byte // bytes between payload and ICRC; nil: as many as the pad count says
	Trail          []byte // bytes between the ICRC and the end of the datagram
	Private        []byte // private data of a message of the connection manager
	BadICRC        bool
}

// Bounds of a frame: the options of an IPv4 header (RFC 791), and an IP packet of 64 KiB with a tagged Ethernet header.
const (
	mostOptions = 40
	mostBytes   = ethernetLen + vlanLen + 1<<16
)

// Build returns the frame. It computes lengths, checksums, pad and ICRC last, from the fields as they are then. Fields that
// the specification names keep their value.
func (s *Spec) Build() (*Frame, error) {
	f := &Frame{Opcode: s.Opcode}
	if len(s.Options) > 0 && !s.Src.Is4() || len(s.Options)%4 != 0 || len(s.Options) > mostOptions {
		return nil, fmt.Errorf("IP options need IPv4 and a multiple of four bytes up to %d", mostOptions)
	}
	pad := -len(s.Payload) & 3
	padding := s.Padding
	if padding == nil {
		padding = make([]byte, pad)
	}
	at := s.layout(f)
	f.Bytes = make([]byte, at, at+len(s.Payload)+len(padding)+icrcLen+len(s.Trail))
	s.defaults(f, pad)
	f.Bytes = append(f.Bytes, s.Payload...)
	f.Payload = f.Bytes[at:len(f.Bytes):len(f.Bytes)]
	f.findMAD()
	f.Bytes = append(f.Bytes, padding...)
	f.off[hdrICRC] = len(f.Bytes)
	f.Bytes = append(f.Bytes, make([]byte, icrcLen)...)
	f.Bytes = append(f.Bytes, s.Trail...)
	f.end = len(f.Bytes)
	if f.end > mostBytes {
		return nil, fmt.Errorf("the frame has %d bytes; no link takes more than %d", f.end, mostBytes)
	}
	if err := s.apply(f); err != nil {
		return nil, err
	}
	if room := f.Private(); len(s.Private) > len(room) {
		return nil, fmt.Errorf("private: %d bytes, the message has room for %d", len(s.Private), len(room))
	}
	copy(f.Private(), s.Private)
	return f, s.seal(f)
}

// layout sets the offsets of all headers and returns the offset of the payload.
func (s *Spec) layout(f *Frame) int {
	at := ethernetLen
	place := func(h header, n int) {
		f.off[h] = at
		at += n
	}
	if s.VLAN {
		place(hdrVLAN, vlanLen)
	}
	if s.Src.Is4() {
		place(hdrIPv4, ipv4Len+len(s.Options))
	} else {
		place(hdrIPv6, ipv6Len)
	}
	place(hdrUDP, udpLen)
	place(hdrBTH, bthLen)
	set := s.extensions()
	if set&bth.HdrXETH != 0 {
		s.placeExtension(place)
	}
	for _, t := range transportHeaders {
		if set&t.bit != 0 {
			place(t.hdr, lengths[t.hdr])
		}
	}
	f.off[hdrPayload] = at
	return at
}

// DefaultSourcePort is the UDP source port of built frames.
const DefaultSourcePort = 0xc0de

// defaults writes the usual values of all fields but lengths and checksums.
func (s *Spec) defaults(f *Frame, pad int) {
	copy(f.Bytes, s.DstMAC[:])
	copy(f.Bytes[6:], s.SrcMAC[:])
	etherType := uint16(etherIPv4)
	if f.has(hdrIPv6) {
		etherType = etherIPv6
	}
	binary.BigEndian.PutUint16(f.Bytes[12:], etherType)
	if s.VLAN {
		binary.BigEndian.PutUint16(f.Bytes[12:], etherVLAN)
		f.set("vlan.type", uint64(etherType))
	}
	src, _ := f.Address("ip.src")
	dst, _ := f.Address("ip.dst")
	copy(src, s.Src.AsSlice())
	copy(dst, s.Dst.AsSlice())
	if f.has(hdrIPv4) {
		copy(f.Bytes[f.off[hdrIPv4]+ipv4Len:], s.Options)
	}
	for _, v := range []Set{{Name: "ip.version", Value: uint64(4)}, {Name: "ip.ihl", Value: uint64(ipv4Len+len(s.Options)) / 4},
		{Name: "ip.flags", Value: 2}, {Name: "ip.ttl", Value: 64}, {Name: "ip.proto", Value: protoUDP},
		{Name: "udp.sport", Value: DefaultSourcePort}, {Name: "udp.dport", Value: portRoCE},
		{Name: "opcode", Value: uint64(s.Opcode)}, {Name: "mig", Value: migration(s.Opcode)}, {Name: "pad", Value: uint64(pad)},
		{Name: "pkey", Value: bth.DefaultPKey}} {
		f.set(v.Name, v.Value)
	}
	if f.has(hdrIPv6) {
		f.set("ip.version", 6)
	}
	if f.has(hdrExtension) {
		f.defaultExtension()
	}
}

// set writes a field if the frame has it.
func (f *Frame) set(name string, v uint64) {
	if x := f.field(name); x != nil {
		x.put(f.Bytes[f.off[x.hdr]:], v)
	}
}

// apply writes the fields that the specification names.
func (s *Spec) apply(f *Frame) error {
	for _, v := range s.Fields {
		if v.Name == "icrc" {
			continue
		}
		x := f.field(v.Name)
		switch {
		case x == nil:
			return fmt.Errorf("%s has no field %s", OpcodeName(s.Opcode), v.Name)
		case v.Bytes != nil && len(v.Bytes) != x.bits/8:
			return fmt.Errorf("%s: %d bytes for a field of %d bits", v.Name, len(v.Bytes), x.bits)
		case v.Bytes != nil:
			copy(f.Bytes[f.off[x.hdr]+x.bit/8:], v.Bytes)
		case x.bits < 64 && v.Value>>x.bits != 0:
			return fmt.Errorf("%s=%#x: the field has %d bits", v.Name, v.Value, x.bits)
		default:
			x.put(f.Bytes[f.off[x.hdr]:], v.Value)
		}
	}
	return nil
}

// names reports whether the specification names the field.
func (s *Spec) names(field string) bool {
	for _, v := range s.Fields {
		if v.Name == field {
			return true
		}
	}
	return false
}

// seal computes lengths, checksums and ICRC. The ICRC covers lengths as the frame has them then, so that only the named
// fields are wrong. A UDP checksum that the specification does not name is 0 over IPv4 (IBTA annex A17.3.1.1 permits it),
// and computed over IPv6.
func (s *Spec) seal(f *Frame) error {
	derived := func(name string, v int) {
		if !s.names(name) {
			f.set(name, uint64(v))
		}
	}
	l3 := f.l3()
	derived("udp.len", f.end-f.off[hdrUDP])
	if f.has(hdrIPv4) {
		derived("ip.len", f.end-l3)
		derived("ip.csum", 0)
		derived("ip.csum", int(checksum(f.Bytes[l3:f.off[hdrUDP]], 0)))
	} else {
		derived("ip.len", f.end-l3-ipv6Len)
	}
	s.sealICRC(f, l3)
	if f.has(hdrIPv6) && !s.names("udp.csum") {
		sum := f.udpSum()
		if sum == 0 {
			sum = 0xffff // RFC 768: 0 would mean none
		}
		f.set("udp.csum", uint64(sum))
	}
	return nil
}

// sealICRC writes the ICRC. A wrong IP version does not change it: receivers compute no ICRC of such a packet.
func (s *Spec) sealICRC(f *Frame, l3 int) {
	version := f.Bytes[l3]
	defer func() { f.Bytes[l3] = version }()
	f.Bytes[l3] = version&0xf | 4<<4
	if f.has(hdrIPv6) {
		f.Bytes[l3] = version&0xf | 6<<4
	}
	c := f.icrc()
	if s.BadICRC {
		c = ^c
	}
	for _, v := range s.Fields {
		if v.Name == "icrc" {
			c = uint32(v.Value)
		}
	}
	binary.LittleEndian.PutUint32(f.Bytes[f.off[hdrICRC]:], c)
}
