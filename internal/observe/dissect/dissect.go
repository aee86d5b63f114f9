// Package dissect finds the RoCEv2 packet in a captured frame. gopacket and bth/layers decode the frame, through tunnels and
// IPv6 extension headers.
package dissect

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"strings"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	rocelayers "roced.io/roced/bth/layers"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

// Packet is the content of a frame.
type Packet struct {
	Ethernet *Ethernet  // the innermost Ethernet header, or nil
	VLAN     []inet.Tag // all tags, outermost first
	Outer    []Outer    // encapsulations, outermost first
	RoCE     bool       // Datagram, IP and ICRC are set
	Other    string     // the reason for which a frame is not RoCEv2, such as "TCP" or "IP fragments"
	Datagram bth.Datagram
	IP       []byte // the innermost IP packet, to the captured end of what contains it
	ICRC     error  // nil, bth.ErrICRC, or the reason for which it cannot be verified

	ethernet Ethernet
	tags     []uint16
	fragment bool
	vantage  uint32
}

// Ethernet holds the addresses of an Ethernet header.
type Ethernet struct{ Dst, Src inet.MAC }

// Outer is an encapsulation.
type Outer struct {
	Kind     string       `json:"kind"`               // vxlan, geneve, gre, gretap, erspan, ipip, mpls or srv6
	ID       *uint32      `json:"id,omitempty"`       // network, key, session or label
	Src      netip.Addr   `json:"src,omitzero"`       // of the outer IP header
	Dst      netip.Addr   `json:"dst,omitzero"`       // of the outer IP header
	Segments []netip.Addr `json:"segments,omitempty"` // of SRv6, the final destination first
	Left     *uint8       `json:"left,omitempty"`     // segments left
}

// maxLayers bounds the layers of a frame. Each tunnel has two or three.
const maxLayers = 64

// carriers are the layers that can contain RoCEv2.
var carriers = map[gopacket.LayerType]bool{
	layers.LayerTypeEthernet: true, layers.LayerTypeDot1Q: true, layers.LayerTypeMPLS: true,
	layers.LayerTypeIPv4: true, layers.LayerTypeIPv6: true, layers.LayerTypeUDP: true,
	layers.LayerTypeIPv6HopByHop: true, layers.LayerTypeIPv6Destination: true, layers.LayerTypeIPv6Routing: true,
	layers.LayerTypeIPv6Fragment: true, layers.LayerTypeGRE: true, layers.LayerTypeVXLAN: true, layers.LayerTypeGeneve: true,
	layers.LayerTypeERSPANII: true, rocelayers.LayerTypeSRH: true, rocelayers.LayerTypeERSPANI: true,
	rocelayers.LayerTypeERSPANIII: true, rocelayers.LayerTypeBTH: true,
}

// Frame dissects a frame into p, whose slices it reuses. A plain frame of RoCEv2, without tunnels and extension headers, causes no
// allocation.
func (p *Packet) Frame(f *pcapng.Frame) {
	*p = Packet{VLAN: p.VLAN[:0], tags: p.tags[:0]}
	off, etherType, err := f.Link.Network(f.Data, &p.tags)
	if err != nil {
		p.Other = f.Link.String()
		return
	}
	for _, t := range p.tags {
		p.VLAN = append(p.VLAN, inet.Tag(t))
	}
	if f.Link == pcapng.LinkEthernet && len(f.Data) >= inet.EthernetLen {
		p.setEthernet(f.Data)
	}
	p.IP = f.Data[off:]
	if p.Datagram, p.RoCE = bth.ReadDatagram(etherType, p.IP); p.RoCE {
		p.ICRC = rocelayers.ErrTruncated
		if len(p.IP) >= p.Datagram.End {
			p.ICRC = bth.CheckICRC(p.IP[:p.Datagram.End])
		}
	} else {
		b := &builder{cut: len(f.Data) < f.Length}
		if etherType != 0 {
			b.decode(layers.EthernetType(etherType), p.IP)
		}
		p.read(b)
		if !p.RoCE {
			p.Other = b.reason(p, etherType)
		}
	}
	p.vantage = p.place(f, off)
}

// setEthernet sets the Ethernet addresses from a header.
func (p *Packet) setEthernet(h []byte) {
	p.ethernet = Ethernet{inet.MAC(h[:6]), inet.MAC(h[6:12])}
	p.Ethernet = &p.ethernet
}

// place returns a hash of the place where the frame was captured: interface, headers below IP, encapsulations, and hop limit.
func (p *Packet) place(f *pcapng.Frame, off int) uint32 {
	h := crc32.Update(uint32(f.Interface)<<8|uint32(f.Direction), crc32.IEEETable, f.Data[:off])
	for i := range p.Outer {
		h = crc32.Update(h, crc32.IEEETable, p.Outer[i].AppendText(nil))
	}
	if !p.RoCE {
		return h
	}
	return h*31 + uint32(p.HopLimit())
}

// HopLimit returns the TTL or hop limit of the innermost IP header.
func (p *Packet) HopLimit() uint8 {
	if p.Datagram.Src.Is4() {
		return p.IP[8]
	}
	return p.IP[7]
}

// FlowLabel returns the flow label of the innermost IP header, 0 for IPv4.
func (p *Packet) FlowLabel() uint32 { return inet.FlowLabel(p.IP) }

// Cut is the offset of the incomplete packet at the end of a capture whose writer was killed. It is 0 for a complete capture.
type Cut int64

// String returns the note for users, to append to a line. It is empty for a complete capture.
func (c Cut) String() string {
	if c == 0 {
		return ""
	}
	return fmt.Sprintf("; the capture is cut at byte %d, inside a packet", int64(c))
}

// Read dissects the frames of a capture, and calls take for each. n counts frames from 1, as Wireshark does. A capture that is cut
// after its first packet is no error.
func Read(r io.Reader, take func(n int, f *pcapng.Frame, p *Packet) error) (Cut, error) {
	rd, err := pcapng.NewReader(r)
	if err != nil {
		return 0, err
	}
	var f pcapng.Frame
	var p Packet
	for n := 1; ; n++ {
		err := rd.Next(&f)
		at, damaged := errors.AsType[*pcapng.FileError](err)
		switch {
		case err == io.EOF:
			return 0, nil
		case damaged && n > 1 && at.Err == pcapng.ErrTruncated:
			return Cut(at.Offset), nil
		case err != nil:
			return 0, err
		}
		p.Frame(&f)
		if err := take(n, &f, &p); err != nil {
			return 0, err
		}
	}
}

// Analyse passes the packet of the frame f to an Analyzer. It returns false if the packet belongs to no stream.
func (p *Packet) Analyse(a *flow.Analyzer, f *pcapng.Frame) (s flow.Seen, ok bool) {
	if !p.RoCE {
		a.Other(p.Other, 1)
		return s, false
	}
	return a.Datagram(&flow.Input{Time: mono.Time(f.Time), Datagram: p.Datagram, IP: p.IP, Intact: p.ICRC == nil, Vantage: p.vantage})
}

// builder collects the layers of a frame. It decodes one after the other, and not recursively as gopacket.NewPacket, so that
// their number is bounded.
type builder struct {
	layers []gopacket.Layer
	data   [][]byte         // of each layer, from its header on
	next   gopacket.Decoder // of the layer that cannot contain RoCEv2
	broken bool             // a layer is malformed or truncated
	cut    bool             // the frame or a layer is truncated
	rest   int              // bytes after the last layer
}

// decode decodes layers until one fails, or cannot contain RoCEv2. A decoder of gopacket may panic on a short header.
func (b *builder) decode(first gopacket.Decoder, data []byte) {
	defer func() {
		if recover() != nil {
			b.broken = true
		}
	}()
	b.rest = len(data)
	for b.next = first; carries(b.next) && len(data) > 0 && len(b.layers) < maxLayers; b.rest = len(data) {
		d, n := b.next, len(b.layers)
		b.next = nil
		err := d.Decode(data, b)
		for len(b.data) < len(b.layers) {
			b.data = append(b.data, data)
		}
		if err != nil || len(b.layers) == n {
			b.broken = true
			return
		}
		data = b.layers[len(b.layers)-1].LayerPayload()
	}
}

// carries reports whether a layer can contain RoCEv2.
func carries(d gopacket.Decoder) bool {
	switch d := d.(type) {
	case nil:
		return false
	case gopacket.LayerType:
		return carriers[d]
	case layers.EthernetType:
		return carriers[d.LayerType()]
	case layers.IPProtocol:
		return carriers[d.LayerType()]
	case layers.LinkType:
		return d == layers.LinkTypeEthernet
	}
	return true // MPLS decodes its payload with a function
}

// AddLayer implements gopacket.PacketBuilder.
func (b *builder) AddLayer(l gopacket.Layer) { b.layers = append(b.layers, l) }

// NextDecoder implements gopacket.PacketBuilder. It ends the dissection after a BTH.
func (b *builder) NextDecoder(d gopacket.Decoder) error {
	if b.layers[len(b.layers)-1].LayerType() != rocelayers.LayerTypeBTH {
		b.next = d
	}
	return nil
}

// DecodeOptions implements gopacket.PacketBuilder.
func (b *builder) DecodeOptions() *gopacket.DecodeOptions {
	return &gopacket.DecodeOptions{NoCopy: true}
}

// SetTruncated implements gopacket.PacketBuilder.
func (b *builder) SetTruncated() { b.cut = true }

// SetLinkLayer implements gopacket.PacketBuilder, as the other setters. Packet.read finds layers by their order.
func (b *builder) SetLinkLayer(gopacket.LinkLayer) {}

// SetNetworkLayer implements gopacket.PacketBuilder.
func (b *builder) SetNetworkLayer(gopacket.NetworkLayer) {}

// SetTransportLayer implements gopacket.PacketBuilder.
func (b *builder) SetTransportLayer(gopacket.TransportLayer) {}

// SetApplicationLayer implements gopacket.PacketBuilder.
func (b *builder) SetApplicationLayer(gopacket.ApplicationLayer) {}

// SetErrorLayer implements gopacket.PacketBuilder.
func (b *builder) SetErrorLayer(gopacket.ErrorLayer) {}

// DumpPacketData implements gopacket.PacketBuilder.
func (b *builder) DumpPacketData() {}

// AppendText appends the encapsulation to a line of text.
func (o *Outer) AppendText(b []byte) []byte {
	b = append(append(b, ' '), o.Kind...)
	if o.ID != nil {
		b = fmt.Appendf(b, " %d", *o.ID)
	}
	if o.Src.IsValid() {
		b = fmt.Appendf(b, " %v > %v", o.Src, o.Dst)
	}
	if o.Left != nil {
		b = fmt.Appendf(b, " segments %s left %d", strings.Trim(fmt.Sprint(o.Segments), "[]"), *o.Left)
	}
	return b
}
