package dissect

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	rocelayers "roced.io/roced/bth/layers"
)

// reader interprets the layers of a frame in their order.
type reader struct {
	*Packet
	inIP bool
	here Outer // the encapsulation in the current IP header, if another IP header follows
	off  int   // of the next header in IP
}

// read interprets the layers of a frame.
func (p *Packet) read(b *builder) {
	r := reader{Packet: p}
	for i, l := range b.layers {
		if !r.network(l, b.data[i]) && !r.tunnel(l) {
			r.transport(l)
		}
		r.off += len(l.LayerContents())
	}
	if r.here.Kind == kindSRv6 { // the RoCEv2 packet itself has segments
		r.Outer = append(r.Outer, Outer{Kind: kindSRv6, Segments: r.here.Segments, Left: r.here.Left})
	}
	r.reduced()
	if p.RoCE {
		p.ICRC = rocelayers.CheckLayers(b.layers)
	}
}

// srv6SIDs is the block of SRv6 segment identifiers (RFC 9602).
var srv6SIDs = netip.MustParsePrefix("5f00::/16")

// reduced names reduced encapsulation of SRv6 (H.Encaps.Red, RFC 8986 section 5.2): the only segment, or a list of compressed
// ones, is the destination, without a routing header. A plain tunnel of IPv6 looks the same, so the destination must be a segment
// identifier or the packet one of MRC, which uses SRv6 for its paths.
func (r *reader) reduced() {
	if len(r.Outer) == 0 {
		return
	}
	o := &r.Outer[len(r.Outer)-1]
	if o.Kind == kindIPIP && o.Dst.Is6() && (srv6SIDs.Contains(o.Dst) || r.mrc()) {
		o.Kind = kindSRv6
	}
}

// mrc reports whether the packet is of MRC.
func (r *reader) mrc() bool {
	at := r.Datagram.UDP + bth.UDPLen
	return r.RoCE && at < len(r.IP) && bth.Opcode(r.IP[at]).IsMRC()
}

// network reports whether l is an IP header, and begins its packet.
func (r *reader) network(l gopacket.Layer, data []byte) bool {
	var src, dst []byte
	fragment := false
	switch l := l.(type) {
	case *layers.IPv4:
		src, dst = l.SrcIP, l.DstIP
		fragment = l.Flags&layers.IPv4MoreFragments != 0 || l.FragOffset != 0
	case *layers.IPv6:
		src, dst = l.SrcIP, l.DstIP
	default:
		return false
	}
	if r.inIP {
		r.name(kindIPIP, nil, r.here.Kind == "")
		r.Outer = append(r.Outer, r.here)
	}
	r.here = Outer{}
	r.here.Src, _ = netip.AddrFromSlice(src)
	r.here.Dst, _ = netip.AddrFromSlice(dst)
	r.inIP, r.off, r.IP, r.fragment = true, 0, data, fragment
	r.Datagram, r.RoCE = bth.ReadDatagram(bth.EtherType(data), data)
	if ip, ok := l.(*layers.IPv6); ok && ip.Version == 6 && !r.RoCE {
		r.Datagram = bth.Datagram{Src: r.here.Src, Dst: r.here.Dst, TOS: ip.TrafficClass, End: len(ip.Contents) + int(ip.Length)}
	}
	return true
}

// Kinds of encapsulations that are named without a layer of their own, or twice.
const (
	kindIPIP = "ipip"
	kindSRv6 = "srv6"
	kindGRE  = "gre"
)

// name names the encapsulation in the current IP header if cond holds.
func (r *reader) name(kind string, id *uint32, cond bool) {
	if cond {
		r.here.Kind, r.here.ID = kind, id
	}
}

// tunnel reports whether l is the header of an encapsulation.
func (r *reader) tunnel(l gopacket.Layer) bool {
	switch l := l.(type) {
	case *layers.VXLAN:
		r.name("vxlan", &l.VNI, true)
	case *layers.Geneve:
		r.name("geneve", &l.VNI, true)
	case *layers.GRE:
		r.name(kindGRE, nil, true)
		r.name(kindGRE, &l.Key, l.KeyPresent)
	case *layers.Ethernet:
		r.name("gretap", r.here.ID, r.here.Kind == kindGRE)
		r.setEthernet(l.Contents)
	case *rocelayers.ERSPANI:
		r.name("erspan", nil, true)
	case *layers.ERSPANII:
		r.name("erspan", new(uint32(l.SessionID)), true)
	case *rocelayers.ERSPANIII:
		r.name("erspan", new(uint32(l.SessionID)), true)
	case *layers.MPLS:
		r.name("mpls", &l.Label, r.inIP)
		if !r.inIP {
			r.Outer = append(r.Outer, Outer{Kind: "mpls", ID: &l.Label})
		}
	case *rocelayers.SRH:
		r.here.Kind, r.here.Segments, r.here.Left = kindSRv6, l.Segments, &l.SegmentsLeft
	case *layers.Dot1Q:
		r.VLAN = append(r.VLAN, inet.Tag(binary.BigEndian.Uint16(l.Contents)))
	default:
		return false
	}
	return true
}

// transport interprets the UDP header, and the fragment header of IPv6.
func (r *reader) transport(l gopacket.Layer) {
	switch l := l.(type) {
	case *layers.IPv6Fragment:
		r.fragment = l.MoreFragments || l.FragmentOffset != 0
	case *layers.UDP:
		if !r.RoCE && r.Datagram.Src.IsValid() && bth.IsUDPPort(uint16(l.DstPort)) {
			r.RoCE = true
			r.Datagram.UDP, r.Datagram.SPort = r.off, uint16(l.SrcPort)
			r.Datagram.UDPLen = int(binary.BigEndian.Uint16(l.Contents[4:]))
		}
	}
}
