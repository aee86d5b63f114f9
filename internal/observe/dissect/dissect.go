// Package dissect finds the RoCEv2 packet in a captured frame. gopacket and bth/layers decode the frame, through tunnels and
// IPv6 extension headers.
package dissect

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	rocelayers "roced.io/roced/bth/layers"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

// Packet is the content of a frame.
type Packet struct {
	VLAN     []uint16 // IDs of all tags, outermost first
	Outer    []Outer  // encapsulations, outermost first
	RoCE     bool     // Datagram, IP and ICRC are set
	Fragment bool     // an IP fragment, which the package does not reassemble
	Datagram bth.Datagram
	IP       []byte // the innermost IP packet, to the captured end of what contains it
	ICRC     error  // nil, bth.ErrICRC, or the reason for which it cannot be verified
	vantage  uint32 // hash of the place where the frame was captured
}

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

// Frame dissects a frame. It returns an error if its link type is not supported.
func Frame(f *pcapng.Frame) (*Packet, error) {
	p := &Packet{}
	off, etherType, err := f.Link.Network(f.Data, &p.VLAN)
	if err != nil || etherType == 0 {
		return p, err
	}
	b := &builder{}
	b.decode(layers.EthernetType(etherType), f.Data[off:])
	p.read(b)
	return p, nil
}

// Input returns the packet for an Analyzer. RoCE is set.
func (p *Packet) Input(f *pcapng.Frame) *flow.Input {
	return &flow.Input{Time: mono.Time(f.Time), Datagram: p.Datagram, IP: p.IP, Intact: p.ICRC == nil, Vantage: p.vantage}
}

// builder collects the layers of a frame. It decodes one after the other, and not recursively as gopacket.NewPacket, so that
// their number is bounded.
type builder struct {
	layers []gopacket.Layer
	data   [][]byte // of each layer, from its header on
	next   gopacket.Decoder
}

// decode decodes layers until one fails, or cannot contain RoCEv2. A decoder of gopacket may panic on a short header.
func (b *builder) decode(first gopacket.Decoder, data []byte) {
	defer func() { _ = recover() }()
	for b.next = first; carries(b.next) && len(data) > 0 && len(b.layers) < maxLayers; {
		d, n := b.next, len(b.layers)
		b.next = nil
		err := d.Decode(data, b)
		for len(b.data) < len(b.layers) {
			b.data = append(b.data, data)
		}
		if err != nil || len(b.layers) == n {
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

// SetTruncated implements gopacket.PacketBuilder. Lengths in headers tell which packets are truncated.
func (b *builder) SetTruncated() {}

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
