package dissect

import (
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	rocelayers "roced.io/roced/bth/layers"
)

// Reasons for which a frame is not RoCEv2, besides link types. Live observation counts by the same names.
const (
	Truncated  = "truncated before UDP"
	Malformed  = "malformed"
	Fragments  = "IP fragments"
	TooDeep    = "nested too deeply"
	OtherPorts = "other UDP ports"
	OtherIP    = "other IP protocols"
	OtherTypes = "other EtherTypes"
	OtherMPLS  = "other MPLS payloads"
	RoCEv1     = "RoCE v1"
)

// shortest is the length of the shortest header: a shorter rest is truncated.
const shortest = 4

// protocols and etherTypes name contents of frames.
var (
	protocols = map[layers.IPProtocol]string{
		layers.IPProtocolTCP: "TCP", layers.IPProtocolICMPv4: "ICMP", layers.IPProtocolICMPv6: "ICMP", layers.IPProtocolESP: "ESP",
		layers.IPProtocolIGMP: "IGMP", layers.IPProtocolSCTP: "SCTP", layers.IPProtocolAH: "AH",
	}
	etherTypes = map[layers.EthernetType]string{
		layers.EthernetTypeARP: "ARP", 0x8915: RoCEv1, 0x8808: "MAC control", layers.EthernetTypeLinkLayerDiscovery: "LLDP", 0x88f7: "PTP",
		0x88e5: "MACsec", layers.EthernetTypeLLC: "LLC",
	}
)

// reason returns the reason for which the frame is not RoCEv2: the protocol after the last header, unless that is broken.
func (b *builder) reason(p *Packet, etherType uint16) string {
	if p.fragment {
		return Fragments
	}
	if len(b.layers) >= maxLayers {
		return TooDeep
	}
	if len(b.layers) == 0 {
		return b.after(layers.EthernetType(etherType))
	}
	switch l := b.layers[len(b.layers)-1].(type) {
	case *layers.UDP:
		if l.BaseLayer.Contents == nil || b.broken {
			return b.broke()
		}
		return OtherPorts
	case *layers.IPv4:
		return b.after(l.Protocol)
	case *layers.IPv6:
		return b.after(l.NextHeader)
	case *layers.IPv6HopByHop:
		return b.after(l.NextHeader)
	case *layers.IPv6Destination:
		return b.after(l.NextHeader)
	case *layers.IPv6Fragment:
		return b.after(l.NextHeader)
	case *layers.IPv6Routing:
		return b.after(l.NextHeader)
	case *rocelayers.SRH:
		return b.after(l.NextHeader)
	case *layers.Ethernet:
		return b.after(l.EthernetType)
	case *layers.Dot1Q:
		return b.after(l.Type)
	case *layers.GRE:
		return b.after(l.Protocol)
	case *layers.MPLS:
		if b.rest >= shortest {
			return OtherMPLS
		}
	}
	return b.broke()
}

// after returns the reason for a frame that goes on with next after its last header.
func (b *builder) after(next gopacket.Decoder) string {
	if carries(next) {
		return b.broke()
	}
	switch next := next.(type) {
	case layers.IPProtocol:
		if name, ok := protocols[next]; ok {
			return name
		}
		return OtherIP
	case layers.EthernetType:
		if next == 0 {
			return Truncated
		}
		if name, ok := etherTypes[next]; ok {
			return name
		}
	}
	return OtherTypes
}

// broke returns the reason for a frame whose headers end too early: it is malformed, unless the capture or a mirror has cut it.
func (b *builder) broke() string {
	cut := b.cut || b.rest < shortest
	for i, l := range b.layers {
		switch l := l.(type) {
		case *layers.IPv4:
			cut = cut || int(l.Length) > len(b.data[i])
		case *layers.IPv6:
			cut = cut || len(l.Contents)+int(l.Length) > len(b.data[i])
		}
	}
	if cut {
		return Truncated
	}
	return Malformed
}
