package layers

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// routingTypeSRH is the routing type of a segment routing header.
const routingTypeSRH = 4

// SRH is the IPv6 segment routing header (RFC 8754).
type SRH struct {
	layers.BaseLayer
	NextHeader   layers.IPProtocol
	SegmentsLeft uint8
	LastEntry    uint8
	Flags        uint8
	Tag          uint16
	Segments     []netip.Addr // in the order of the header: the final destination first
	TLVs         []byte
}

const (
	srhLen     = 8
	segmentLen = 16
)

// LayerType returns LayerTypeSRH.
func (s *SRH) LayerType() gopacket.LayerType { return LayerTypeSRH }

// CanDecode returns LayerTypeSRH.
func (s *SRH) CanDecode() gopacket.LayerClass { return LayerTypeSRH }

// NextLayerType returns the type of the next header.
func (s *SRH) NextLayerType() gopacket.LayerType { return s.NextHeader.LayerType() }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (s *SRH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < srhLen {
		return short("SRH", data, srhLen, df)
	}
	n := srhLen + 8*int(data[1])
	if len(data) < n {
		return short("SRH", data, n, df)
	}
	if data[2] != routingTypeSRH {
		return fmt.Errorf("SRH with routing type %d, must be %d", data[2], routingTypeSRH)
	}
	list := data[srhLen:n]
	count := int(data[4]) + 1
	if len(list) == 0 {
		count = 0 // reduced form: the destination address is the only segment
	}
	if count*segmentLen > len(list) || int(data[3]) > count {
		return fmt.Errorf("SRH with last entry %d and %d segments left in %d bytes", data[4], data[3], n)
	}
	s.NextHeader, s.SegmentsLeft = layers.IPProtocol(data[0]), data[3]
	s.LastEntry, s.Flags, s.Tag = data[4], data[5], binary.BigEndian.Uint16(data[6:])
	s.Segments = s.Segments[:0]
	for ; count > 0; count-- {
		s.Segments = append(s.Segments, netip.AddrFrom16([16]byte(list)))
		list = list[segmentLen:]
	}
	s.TLVs = list
	s.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (s *SRH) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	n := srhLen + segmentLen*len(s.Segments) + len(s.TLVs)
	if n%8 != 0 || n > srhLen+8*255 {
		return fmt.Errorf("SRH of %d bytes, must be a multiple of 8 up to %d", n, srhLen+8*255)
	}
	if opts.FixLengths {
		s.LastEntry = uint8(max(1, len(s.Segments)) - 1)
	}
	return prepend(b, n, func(h []byte) {
		h[0], h[1], h[2], h[3] = byte(s.NextHeader), byte((n-srhLen)/8), routingTypeSRH, s.SegmentsLeft
		h[4], h[5] = s.LastEntry, s.Flags
		binary.BigEndian.PutUint16(h[6:], s.Tag)
		h = h[srhLen:]
		for _, a := range s.Segments {
			address := a.As16()
			h = h[copy(h, address[:]):]
		}
		copy(h, s.TLVs)
	})
}

func decodeSRH(data []byte, p gopacket.PacketBuilder) error { return decodeLayer(&SRH{}, data, p) }

// decodeRouting decodes a routing header: an SRH, a source route by gopacket, or one of another type. All have their length at the
// same place (RFC 8200 section 4.4).
func decodeRouting(source gopacket.Decoder) gopacket.DecodeFunc {
	return func(data []byte, p gopacket.PacketBuilder) error {
		if len(data) < srhLen {
			return short("routing header", data, srhLen, p)
		}
		switch data[2] {
		case 0:
			return source.Decode(data, p)
		case routingTypeSRH:
			return decodeSRH(data, p)
		}
		n := srhLen + 8*int(data[1])
		if len(data) < n {
			return short("routing header", data, n, p)
		}
		r := &layers.IPv6Routing{RoutingType: data[2], SegmentsLeft: data[3]}
		r.NextHeader, r.HeaderLength, r.ActualLength = layers.IPProtocol(data[0]), data[1], n
		r.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
		p.AddLayer(r)
		return p.NextDecoder(r.NextHeader)
	}
}

// decodeFragment decodes an IPv6 fragment header. An atomic fragment (RFC 6946) is a whole packet, which gopacket does not
// decode.
func decodeFragment(data []byte, p gopacket.PacketBuilder) error {
	if len(data) < 8 {
		return short("IPv6 fragment header", data, 8, p)
	}
	at := binary.BigEndian.Uint16(data[2:])
	f := &layers.IPv6Fragment{
		BaseLayer: layers.BaseLayer{Contents: data[:8], Payload: data[8:]}, NextHeader: layers.IPProtocol(data[0]),
		Reserved1: data[1], FragmentOffset: at >> 3, Reserved2: uint8(at >> 1 & 3), MoreFragments: at&1 != 0,
		Identification: binary.BigEndian.Uint32(data[4:]),
	}
	p.AddLayer(f)
	if f.FragmentOffset == 0 && !f.MoreFragments {
		return p.NextDecoder(f.NextHeader)
	}
	return p.NextDecoder(gopacket.DecodeFragment)
}

// decodeLayer decodes with l and goes on with its next layer.
func decodeLayer(l extensionOfIP, data []byte, p gopacket.PacketBuilder) error {
	if err := l.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(l)
	return p.NextDecoder(l.NextLayerType())
}

// extensionOfIP is a header between IP and its payload.
type extensionOfIP interface {
	gopacket.Layer
	gopacket.DecodingLayer
}
