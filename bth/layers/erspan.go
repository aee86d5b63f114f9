package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// EtherTypes of ERSPAN in GRE. gopacket decodes type II, which shares its EtherType with type I.
const (
	etherTypeERSPAN    = layers.EthernetTypeERSPAN
	etherTypeERSPANIII = layers.EthernetType(0x22eb)
)

// ERSPANI is a mirrored frame behind GRE without a sequence number (draft-foschiano-erspan-03, type I). It has no header.
type ERSPANI struct{ layers.BaseLayer }

// LayerType returns LayerTypeERSPANI.
func (e *ERSPANI) LayerType() gopacket.LayerType { return LayerTypeERSPANI }

// CanDecode returns LayerTypeERSPANI.
func (e *ERSPANI) CanDecode() gopacket.LayerClass { return LayerTypeERSPANI }

// NextLayerType returns Ethernet.
func (e *ERSPANI) NextLayerType() gopacket.LayerType { return layers.LayerTypeEthernet }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (e *ERSPANI) DecodeFromBytes(data []byte, _ gopacket.DecodeFeedback) error {
	e.BaseLayer = layers.BaseLayer{Contents: data[:0], Payload: data}
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (e *ERSPANI) SerializeTo(gopacket.SerializeBuffer, gopacket.SerializeOptions) error { return nil }

// ERSPANIII is the header of a mirrored frame or packet (draft-foschiano-erspan-03, type III).
type ERSPANIII struct {
	layers.BaseLayer
	Version        uint8  // 4 bits, 2
	VLANIdentifier uint16 // 12 bits
	CoS            uint8  // 3 bits
	BadShort       uint8  // 2 bits: bad, short or oversized
	IsTruncated    bool
	SessionID      uint16 // 10 bits
	Timestamp      uint32
	SecurityGroup  uint16
	PDU            bool  // an Ethernet frame, from its header on
	FrameType      uint8 // 5 bits; 0 Ethernet, 2 IP
	HardwareID     uint8 // 6 bits
	Egress         bool
	Granularity    uint8 // 2 bits
	// Platform is the subheader of the platform, 8 bytes, or nil.
	Platform []byte
}

const (
	erspanIIILen   = 12
	erspanPlatform = 8
	erspanFrameIP  = 2
	erspanIILen    = 8
)

// LayerType returns LayerTypeERSPANIII.
func (e *ERSPANIII) LayerType() gopacket.LayerType { return LayerTypeERSPANIII }

// CanDecode returns LayerTypeERSPANIII.
func (e *ERSPANIII) CanDecode() gopacket.LayerClass { return LayerTypeERSPANIII }

// NextLayerType returns the type of the mirrored frame.
func (e *ERSPANIII) NextLayerType() gopacket.LayerType {
	switch {
	case e.FrameType == 0:
		return layers.LayerTypeEthernet
	case e.FrameType == erspanFrameIP && len(e.Payload) > 0 && e.Payload[0]>>4 == 6:
		return layers.LayerTypeIPv6
	case e.FrameType == erspanFrameIP:
		return layers.LayerTypeIPv4
	}
	return gopacket.LayerTypePayload
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (e *ERSPANIII) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < erspanIIILen {
		return short("ERSPAN III", data, erspanIIILen, df)
	}
	n := erspanIIILen
	e.Platform = nil
	if data[11]&1 != 0 {
		if n += erspanPlatform; len(data) < n {
			return short("ERSPAN III", data, n, df)
		}
		e.Platform = data[erspanIIILen:n]
	}
	e.Version, e.VLANIdentifier = data[0]>>4, binary.BigEndian.Uint16(data)&0xfff
	e.CoS, e.BadShort, e.IsTruncated = data[2]>>5, data[2]>>3&3, data[2]&4 != 0
	e.SessionID = binary.BigEndian.Uint16(data[2:]) & 0x3ff
	e.Timestamp, e.SecurityGroup = binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint16(data[8:])
	e.PDU, e.FrameType = data[10]&0x80 != 0, data[10]>>2&0x1f
	e.HardwareID = uint8(binary.BigEndian.Uint16(data[10:]) >> 4 & 0x3f)
	e.Egress, e.Granularity = data[11]&8 != 0, data[11]>>1&3
	e.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (e *ERSPANIII) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	if n := len(e.Platform); n != 0 && n != erspanPlatform {
		return fmt.Errorf("ERSPAN III: subheader of the platform has %d bytes, must be 0 or %d", n, erspanPlatform)
	}
	return prepend(b, erspanIIILen+len(e.Platform), func(h []byte) {
		binary.BigEndian.PutUint16(h, uint16(e.Version)<<12|e.VLANIdentifier&0xfff)
		binary.BigEndian.PutUint16(h[2:], uint16(e.CoS&7)<<13|uint16(e.BadShort&3)<<11|uint16(flag(e.IsTruncated, 4))<<8|e.SessionID&0x3ff)
		binary.BigEndian.PutUint32(h[4:], e.Timestamp)
		binary.BigEndian.PutUint16(h[8:], e.SecurityGroup)
		binary.BigEndian.PutUint16(h[10:], uint16(flag(e.PDU, 0x80))<<8|uint16(e.FrameType&0x1f)<<10|uint16(e.HardwareID&0x3f)<<4)
		h[11] |= flag(e.Egress, 8) | e.Granularity&3<<1 | flag(e.Platform != nil, 1)
		copy(h[erspanIIILen:], e.Platform)
	})
}

// decodeGRE decodes GRE and selects the type of ERSPAN by the sequence number. gopacket's decoder reads past the end of short
// headers.
func decodeGRE(data []byte, p gopacket.PacketBuilder) error {
	if len(data) < 4 {
		return short("GRE", data, 4, p)
	}
	const checksum, routing, key, sequence, ack = 0x8000, 0x4000, 0x2000, 0x1000, 0x0080
	flags := binary.BigEndian.Uint16(data)
	if flags&routing != 0 {
		return fmt.Errorf("GRE with source routes (RFC 1701)")
	}
	n := 4
	for _, f := range [...]uint16{checksum, key, sequence, ack} {
		if flags&f != 0 {
			n += 4
		}
	}
	if len(data) < n {
		return short("GRE", data, n, p)
	}
	g := &layers.GRE{}
	if err := g.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(g)
	switch {
	case g.Protocol == etherTypeERSPAN && !g.SeqPresent:
		return p.NextDecoder(LayerTypeERSPANI)
	case g.Protocol == etherTypeERSPAN && len(g.Payload) < erspanIILen:
		return short("ERSPAN II", g.Payload, erspanIILen, p)
	}
	return p.NextDecoder(g.NextLayerType())
}
