// Package layers decodes and serialises RoCEv2 with gopacket. A program that imports it, if only for its side effect,
// decodes UDP port 4791, and 4971 of MRC: gopacket.NewPacket yields a BTH layer, one layer for each extension header of the opcode, and the
// payload as gopacket.Payload. The pad and the ICRC, which follow the payload, are fields of the BTH layer; CheckICRC
// verifies the ICRC.
//
// Layers can also be serialised, and used with a gopacket.DecodingLayerParser (see Stack).
//
// The package also adds encapsulations that gopacket lacks: segment routing headers of IPv6, ERSPAN of types I and III, atomic
// fragments of IPv6, GRE and MPLS over UDP. CheckICRC verifies the ICRC of an encapsulated packet.
//
// gopacket demands that the numbers of layer types are unique in a program. This package uses 1791 to 1811: the port number
// less 3000, and the numbers after it.
//
// The API of this package is stable: releases of one major version only add to it.
package layers

import (
	"math/bits"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
)

// Layer types of RoCEv2.
var (
	LayerTypeBTH          = register(1791, "BTH", decodeBTH)
	LayerTypeDETH         = extension(1792, "DETH", bth.HdrDETH, func() header { return &DETH{} })
	LayerTypeRETH         = extension(1793, "RETH", bth.HdrRETH, func() header { return &RETH{} })
	LayerTypeAtomicETH    = extension(1794, "AtomicETH", bth.HdrAtomicETH, func() header { return &AtomicETH{} })
	LayerTypeAETH         = extension(1795, "AETH", bth.HdrAETH, func() header { return &AETH{} })
	LayerTypeAtomicAckETH = extension(1796, "AtomicAckETH", bth.HdrAtomicAck, func() header { return &AtomicAckETH{} })
	LayerTypeImmDt        = extension(1797, "ImmDt", bth.HdrImm, func() header { return &ImmDt{} })
	LayerTypeIETH         = extension(1798, "IETH", bth.HdrIETH, func() header { return &IETH{} })
	LayerTypeXETH         = extension(1799, "XETH", bth.HdrXETH, func() header { return &XETH{} })
	LayerTypeFETH         = extension(1800, "FETH", bth.HdrFETH, func() header { return &FETH{} })
	LayerTypeMETH         = extension(1801, "METH", bth.HdrMETH, func() header { return &METH{} })
	LayerTypeTSETH        = extension(1802, "TSETH", bth.HdrTSETH, func() header { return &TSETH{} })
	LayerTypeSETH         = extension(1803, "SETH", bth.HdrSETH, func() header { return &SETH{} })
	LayerTypeCCState      = extension(1804, "CCState", bth.HdrCCState, func() header { return &CCState{} })
	LayerTypeNETH         = extension(1805, "NETH", bth.HdrNETH, func() header { return &NETH{} })
	LayerTypePETH         = extension(1806, "PETH", bth.HdrPETH, func() header { return &PETH{} })
	LayerTypeERTH         = extension(1807, "ERTH", bth.HdrERTH, func() header { return &ERTH{} })
	LayerTypeEETH         = extension(1808, "EETH", bth.HdrEETH, func() header { return &EETH{} })
)

// Layer types of encapsulations.
var (
	LayerTypeSRH       = register(1809, "SRH", decodeSRH)
	LayerTypeERSPANI   = register(1810, "ERSPAN Type I", func(b []byte, p gopacket.PacketBuilder) error { return decodeLayer(&ERSPANI{}, b, p) })
	LayerTypeERSPANIII = register(1811, "ERSPAN Type III", func(b []byte, p gopacket.PacketBuilder) error { return decodeLayer(&ERSPANIII{}, b, p) })
)

func register(num int, name string, decode gopacket.DecodeFunc) gopacket.LayerType {
	return gopacket.RegisterLayerType(num, gopacket.LayerTypeMetadata{Name: name, Decoder: decode})
}

// header is an extension header.
type header interface {
	gopacket.SerializableLayer
	gopacket.DecodingLayer
	gopacket.Layer
}

// extensions are the layer types of the extension headers and functions that make their layers, in the order of their bits
// in bth.Headers.
var extensions [32]struct {
	gopacket.LayerType
	make func() header
}

// extension registers the layer of an extension header. The decoder is for programs that start at such a layer, which payload
// follows.
func extension(num int, name string, h bth.Headers, make func() header) gopacket.LayerType {
	e := &extensions[bits.TrailingZeros32(uint32(h))]
	e.LayerType, e.make = register(num, name, chain(h).Decode), make
	return e.LayerType
}

func init() {
	layers.RegisterUDPPortLayerType(bth.UDPPort, LayerTypeBTH)
	layers.RegisterUDPPortLayerType(bth.MRCUDPPort, LayerTypeBTH)
	registerCarriers()
}

// registerCarriers adds the encapsulations that gopacket lacks, and replaces decoders of gopacket that lack a part.
func registerCarriers() {
	const portVXLANLinux, portGRE, portMPLS = 8472, 4754, 6635
	layers.RegisterUDPPortLayerType(portVXLANLinux, layers.LayerTypeVXLAN)
	layers.RegisterUDPPortLayerType(portGRE, layers.LayerTypeGRE)   // RFC 8086
	layers.RegisterUDPPortLayerType(portMPLS, layers.LayerTypeMPLS) // RFC 7510
	layers.EthernetTypeMetadata[etherTypeERSPANIII] = layers.EnumMetadata{DecodeWith: LayerTypeERSPANIII, Name: "ERSPAN Type III", LayerType: LayerTypeERSPANIII}
	layers.EthernetTypeMetadata[etherTypeVLAN] = layers.EthernetTypeMetadata[layers.EthernetTypeQinQ]
	replace(layers.IPProtocolGRE, decodeGRE)
	replace(layers.IPProtocolIPv6Fragment, decodeFragment)
	replace(layers.IPProtocolIPv6Routing, decodeRouting(layers.IPProtocolMetadata[layers.IPProtocolIPv6Routing].DecodeWith))
}

// etherTypeVLAN is the EtherType of outer VLAN tags before the standard.
const etherTypeVLAN = 0x9100

// replace replaces the decoder of an IP protocol and of its layer type.
func replace(protocol layers.IPProtocol, decode gopacket.DecodeFunc) {
	m := &layers.IPProtocolMetadata[protocol]
	m.DecodeWith = decode
	gopacket.OverrideLayerType(int(m.LayerType), gopacket.LayerTypeMetadata{Name: m.LayerType.String(), Decoder: decode})
}

// layerTypeOf returns the layer type of the first header of h, that of the payload if h is empty.
func layerTypeOf(h bth.Headers) gopacket.LayerType {
	if h == 0 {
		return gopacket.LayerTypePayload
	}
	return extensions[bits.TrailingZeros32(uint32(h))].LayerType
}

// chain decodes the extension headers in its set, then the payload. Only the BTH tells which headers follow, so chain
// carries the set from layer to layer.
type chain bth.Headers

// Decode implements gopacket.Decoder.
func (c chain) Decode(data []byte, p gopacket.PacketBuilder) error {
	if c == 0 {
		return gopacket.LayerTypePayload.Decode(data, p)
	}
	l := extensions[bits.TrailingZeros32(uint32(c))].make()
	if err := l.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(l)
	return p.NextDecoder(c & (c - 1))
}
