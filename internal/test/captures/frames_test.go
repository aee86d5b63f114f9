package captures

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	rocelayers "roced.io/roced/bth/layers"
	"roced.io/roced/internal/observe/pcapng"
)

// stack is a list of headers, outermost first.
type stack []gopacket.SerializableLayer

// join returns one stack of several.
func join(parts ...any) (s stack) {
	for _, p := range parts {
		switch p := p.(type) {
		case stack:
			s = append(s, p...)
		case []byte:
			s = append(s, gopacket.Payload(p))
		case gopacket.SerializableLayer:
			s = append(s, p)
		}
	}
	return s
}

// bytes serialises a stack.
func (s stack) bytes() []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, s...); err != nil {
		panic(err)
	}
	return bytes.Clone(buf.Bytes())
}

func ether(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: t}
}

func tag(id uint16, t layers.EthernetType) *layers.Dot1Q {
	return &layers.Dot1Q{VLANIdentifier: id, Priority: 3, Type: t}
}

// via4 and via6 are outer IP headers.
func via4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 60, Id: 9, Protocol: p, SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}
}

func via6(p layers.IPProtocol) *layers.IPv6 {
	src, dst := netip.MustParseAddr("2001:db8::1").As16(), netip.MustParseAddr("2001:db8::2").As16()
	return &layers.IPv6{Version: 6, HopLimit: 60, NextHeader: p, SrcIP: src[:], DstIP: dst[:]}
}

func port(p layers.UDPPort) *layers.UDP { return &layers.UDP{SrcPort: 50000, DstPort: p} }

func vxlan() *layers.VXLAN { return &layers.VXLAN{ValidIDFlag: true, VNI: 5} }

// geneve is a header with an option of 4 bytes.
func geneve() []byte { return []byte{2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 0, 1, 0, 0, 0, 0} }

func gre(t layers.EthernetType) *layers.GRE { return &layers.GRE{Protocol: t} }

func mpls(bottom bool) *layers.MPLS { return &layers.MPLS{Label: 3, TTL: 9, StackBottom: bottom} }

// inner is a packet of RoCEv2 over IPv4 or IPv6, with extension headers of IPv6: each begins with its own number.
type inner struct {
	v6         bool
	extensions [][]byte
	reverse    bool // from the second host to the first
	packet     bth.Packet
}

// network is the EtherType of the packet.
func (p *inner) network() layers.EthernetType {
	if p.v6 {
		return layers.EthernetTypeIPv6
	}
	return layers.EthernetTypeIPv4
}

// protocol is the number of its IP header in another IP header.
func (p *inner) protocol() layers.IPProtocol {
	if p.v6 {
		return layers.IPProtocolIPv6
	}
	return layers.IPProtocolIPv4
}

// bytes returns the packet with its ICRC.
func (p *inner) bytes() []byte {
	p.packet.PKey = bth.DefaultPKey
	body := p.packet.AppendTo(nil)
	src, dst := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	if p.v6 {
		src, dst = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	}
	if p.reverse {
		src, dst = dst, src
	}
	s, d := inet.GIDOf(src), inet.GIDOf(dst)
	var l3 []byte
	if p.v6 {
		l3 = make([]byte, inet.IPv6Len)
		inet.PutIPv6(l3, 0x6a, 64, 17, &s, &d)
		inet.SetFlowLabel(l3, 0x12345)
		next := 6
		for _, x := range p.extensions {
			l3[next] = x[0]
			next = len(l3)
			l3 = append(l3, x...)
			l3[next] = 17
		}
		binary.BigEndian.PutUint16(l3[4:], uint16(len(l3)-inet.IPv6Len+inet.UDPLen+len(body)))
	} else {
		l3 = make([]byte, inet.IPv4Len)
		inet.PutIPv4(l3, 0x6a, 64, 17, &s, &d)
		binary.BigEndian.PutUint16(l3[2:], uint16(inet.IPv4Len+inet.UDPLen+len(body)))
	}
	udp := make([]byte, inet.UDPLen)
	binary.BigEndian.PutUint16(udp, 0xc123)
	binary.BigEndian.PutUint16(udp[2:], bth.UDPPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(inet.UDPLen+len(body)))
	end := len(body) - bth.ICRCLen
	bth.PutICRC(body[end:], bth.ICRCUpdate(bth.ICRCStart(l3, udp, body[:bth.BTHLen]), body[bth.BTHLen:end]))
	if !p.v6 {
		inet.SealIPv4(l3)
	}
	return append(append(l3, udp...), body...)
}

// Extension headers of IPv6.
var (
	hopByHop    = []byte{0, 0, 1, 4, 0, 0, 0, 0}
	destination = []byte{60, 0, 1, 4, 0, 0, 0, 0}
	atomic      = []byte{44, 0, 0, 0, 0, 0, 0, 1}
	mobile      = append([]byte{43, 2, 2, 0, 0, 0, 0, 0, 0xfd}, append(make([]byte, 14), 2)...)
	segments    = append([]byte{43, 2, 4, 0, 0, 0, 0, 0, 0xfd}, append(make([]byte, 14), 2)...)
)

// encapsulation is a way to carry RoCEv2.
type encapsulation struct {
	name       string // as in docs/reference/captures.md
	link       pcapng.LinkType
	wrap       func(p *inner) stack // headers before the packet
	v6         bool                 // only over IPv6
	extensions [][]byte
}

// over returns headers that do not depend on the packet.
func over(parts ...any) func(*inner) stack { return func(*inner) stack { return join(parts...) } }

// frame returns the packet in the encapsulation.
func (e *encapsulation) frame(p inner) []byte {
	p.v6, p.extensions = p.v6 || e.v6, e.extensions
	return join(e.wrap(&p), p.bytes()).bytes()
}

// encapsulations are all that are supported.
var encapsulations = []encapsulation{
	{name: "Ethernet", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(p.network())) }},
	{name: "VLAN (802.1Q)", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x8100), tag(5, p.network())) }},
	{name: "QinQ (802.1ad)", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x88a8), tag(5, 0x8100), tag(6, p.network())) }},
	{name: "QinQ (0x9100)", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x9100), tag(5, 0x8100), tag(6, p.network())) }},
	{name: "VXLAN", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(17), port(4789), vxlan(), ether(p.network())) }},
	{name: "VXLAN (port 8472)", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x86dd), via6(17), port(8472), vxlan(), ether(p.network())) }},
	{name: "GENEVE", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(17), port(6081), geneve(), ether(p.network())) }},
	{name: "GRE", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(47), gre(p.network())) }},
	{name: "GRE over UDP", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(17), port(4754), gre(p.network())) }},
	{name: "GRETAP", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x800), via4(47), &layers.GRE{Protocol: 0x6558, KeyPresent: true, Key: 9}, ether(p.network()))
	}},
	{name: "ERSPAN I", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(47), gre(0x88be), ether(p.network())) }},
	{name: "ERSPAN II", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x800), via4(47), &layers.GRE{Protocol: 0x88be, SeqPresent: true}, &layers.ERSPANII{Version: 1, SessionID: 7}, ether(p.network()))
	}},
	{name: "ERSPAN III", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x800), via4(47), &layers.GRE{Protocol: 0x22eb, SeqPresent: true}, &rocelayers.ERSPANIII{Version: 2, SessionID: 7}, ether(p.network()))
	}},
	{name: "MPLS", link: pcapng.LinkEthernet, wrap: over(ether(0x8847), mpls(false), mpls(true))},
	{name: "MPLS over UDP", link: pcapng.LinkEthernet, wrap: over(ether(0x800), via4(17), port(6635), mpls(true))},
	{name: "MPLS over GRE", link: pcapng.LinkEthernet, wrap: over(ether(0x800), via4(47), gre(0x8847), mpls(true))},
	{name: "IP in IPv4", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x800), via4(p.protocol())) }},
	{name: "IP in IPv6", link: pcapng.LinkEthernet, wrap: func(p *inner) stack { return join(ether(0x86dd), via6(p.protocol())) }},
	{name: "SRv6", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x86dd), via6(43), &rocelayers.SRH{NextHeader: p.protocol(), Segments: []netip.Addr{netip.MustParseAddr("2001:db8::9")}})
	}},
	{name: "IPv6 hop-by-hop options", link: pcapng.LinkEthernet, wrap: over(ether(0x86dd)), v6: true, extensions: [][]byte{hopByHop}},
	{name: "IPv6 destination options", link: pcapng.LinkEthernet, wrap: over(ether(0x86dd)), v6: true, extensions: [][]byte{destination}},
	{name: "IPv6 routing header", link: pcapng.LinkEthernet, wrap: over(ether(0x86dd)), v6: true, extensions: [][]byte{segments}},
	{name: "IPv6 routing header of another type", link: pcapng.LinkEthernet, wrap: over(ether(0x86dd)), v6: true, extensions: [][]byte{mobile}},
	{name: "IPv6 atomic fragment", link: pcapng.LinkEthernet, wrap: over(ether(0x86dd)), v6: true, extensions: [][]byte{hopByHop, atomic, destination}},
	{name: "VXLAN in QinQ", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x88a8), tag(5, 0x8100), tag(6, 0x86dd), via6(17), port(4789), vxlan(), ether(0x8100), tag(7, p.network()))
	}},
	{name: "GENEVE in GRE in IP", link: pcapng.LinkEthernet, wrap: func(p *inner) stack {
		return join(ether(0x800), via4(4), via4(47), gre(0x86dd), via6(17), port(6081), geneve(), ether(p.network()))
	}},
	{name: "Linux cooked capture", link: pcapng.LinkSLL, wrap: func(p *inner) stack {
		return join(binary.BigEndian.AppendUint16([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, uint16(p.network())))
	}},
	{name: "Linux cooked capture 2", link: pcapng.LinkSLL2, wrap: func(p *inner) stack {
		return join(append(binary.BigEndian.AppendUint16(nil, uint16(p.network())), 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0))
	}},
	{name: "loopback of BSD", link: pcapng.LinkNull, wrap: func(p *inner) stack {
		return join([]byte{map[bool]byte{false: 2, true: 30}[p.v6], 0, 0, 0})
	}},
	{name: "loopback of OpenBSD", link: pcapng.LinkLoop, wrap: func(p *inner) stack {
		return join([]byte{0, 0, 0, map[bool]byte{false: 2, true: 24}[p.v6]})
	}},
	{name: "raw IP", link: pcapng.LinkRaw, wrap: over()},
}

// conversation returns packets between queue pair 0x21 of the first host and 0x11 of the second: a WRITE of 2048 bytes in two packets, a
// SEND of 100 bytes, a READ of 1000 bytes, and their answers.
func conversation(v6 bool) []inner {
	ask := func(psn uint32, p bth.Packet) inner {
		p.DestQP, p.PSN = 0x11, bth.MakePSN(psn)
		return inner{v6: v6, packet: p}
	}
	answer := func(psn uint32, p bth.Packet) inner {
		p.DestQP, p.PSN = 0x21, bth.MakePSN(psn)
		p.AETH = bth.AETH{Syndrome: bth.SyndromeACK}
		return inner{v6: v6, packet: p, reverse: true}
	}
	data := func(n int) []byte { return bytes.Repeat([]byte{0x5a}, n) }
	return []inner{
		ask(10, bth.Packet{Opcode: bth.OpWriteFirst, RETH: bth.RETH{VA: 0x1000, RKey: 7, Length: 2048}, Payload: data(1024)}),
		ask(11, bth.Packet{Opcode: bth.OpWriteLast, AckReq: true, Payload: data(1024)}),
		answer(11, bth.Packet{Opcode: bth.OpAcknowledge}),
		ask(12, bth.Packet{Opcode: bth.OpSendOnly, AckReq: true, Payload: data(100)}),
		answer(12, bth.Packet{Opcode: bth.OpAcknowledge}),
		ask(13, bth.Packet{Opcode: bth.OpReadRequest, AckReq: true, RETH: bth.RETH{VA: 0x1000, RKey: 7, Length: 1000}}),
		answer(13, bth.Packet{Opcode: bth.OpReadRespOnly, Payload: data(1000)}),
	}
}

// format writes a capture file.
type format struct {
	name  string
	order binary.AppendByteOrder
	ng    bool
	nano  bool
	old   bool // obsolete packet blocks
	gzip  bool
}

var formats = []format{
	{name: "pcap", order: binary.LittleEndian}, {name: "big-endian pcap", order: binary.BigEndian},
	{name: "pcap in nanoseconds", order: binary.LittleEndian, nano: true}, {name: "big-endian pcap in nanoseconds", order: binary.BigEndian, nano: true},
	{name: "pcapng", order: binary.LittleEndian, ng: true}, {name: "big-endian pcapng", order: binary.BigEndian, ng: true},
	{name: "pcapng with obsolete blocks", order: binary.LittleEndian, ng: true, old: true}, {name: "big-endian pcapng with obsolete blocks", order: binary.BigEndian, ng: true, old: true},
	{name: "pcap in gzip", order: binary.LittleEndian, gzip: true}, {name: "pcapng in gzip", order: binary.BigEndian, ng: true, gzip: true},
}

// file writes frames, 1 ms apart and cut to snap bytes. As by a mirror, they have no other length if mirrored.
func (f *format) file(link pcapng.LinkType, frames [][]byte, snap int, mirrored bool) []byte {
	var b []byte
	u32 := func(v ...uint32) {
		for _, x := range v {
			b = f.order.AppendUint32(b, x)
		}
	}
	if f.ng {
		u32(0x0a0d0d0a, 28, 0x1a2b3c4d)
		b = f.order.AppendUint16(f.order.AppendUint16(b, 1), 0)
		u32(0xffffffff, 0xffffffff, 28, 1, 20)
		b = f.order.AppendUint16(f.order.AppendUint16(b, uint16(link)), 0)
		u32(0, 20)
	} else {
		u32(map[bool]uint32{false: 0xa1b2c3d4, true: 0xa1b23c4d}[f.nano])
		b = f.order.AppendUint16(f.order.AppendUint16(b, 2), 4)
		u32(0, 0, 1<<18, uint32(link))
	}
	for i, frame := range frames {
		part := frame[:min(len(frame), snap)]
		length := len(frame)
		if mirrored {
			length = len(part)
		}
		ms := uint32(i)
		if !f.ng {
			u32(1, ms*map[bool]uint32{false: 1e3, true: 1e6}[f.nano], uint32(len(part)), uint32(length))
			b = append(b, part...)
			continue
		}
		size := uint32(32 + (len(part)+3)&^3)
		if f.old {
			u32(2, size)
			b = f.order.AppendUint16(f.order.AppendUint16(b, 0), 0xffff)
		} else {
			u32(6, size, 0)
		}
		u32(0, 1e6+ms*1e3, uint32(len(part)), uint32(length))
		b = append(append(b, part...), make([]byte, -len(part)&3)...)
		u32(size)
	}
	if !f.gzip {
		return b
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write(b)
	_ = w.Close()
	return z.Bytes()
}
