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
	LayerTypeDETH         = register(1792, "DETH", decodeAlone(bth.HdrDETH))
	LayerTypeRETH         = register(1793, "RETH", decodeAlone(bth.HdrRETH))
	LayerTypeAtomicETH    = register(1794, "AtomicETH", decodeAlone(bth.HdrAtomicETH))
	LayerTypeAETH         = register(1795, "AETH", decodeAlone(bth.HdrAETH))
	LayerTypeAtomicAckETH = register(1796, "AtomicAckETH", decodeAlone(bth.HdrAtomicAck))
	LayerTypeImmDt        = register(1797, "ImmDt", decodeAlone(bth.HdrImm))
	LayerTypeIETH         = register(1798, "IETH", decodeAlone(bth.HdrIETH))
	LayerTypeXETH         = register(1799, "XETH", decodeAlone(bth.HdrXETH))
	LayerTypeFETH         = register(1800, "FETH", decodeAlone(bth.HdrFETH))
	LayerTypeMETH         = register(1801, "METH", decodeAlone(bth.HdrMETH))
	LayerTypeTSETH        = register(1802, "TSETH", decodeAlone(bth.HdrTSETH))
	LayerTypeSETH         = register(1803, "SETH", decodeAlone(bth.HdrSETH))
	LayerTypeCCState      = register(1804, "CCState", decodeAlone(bth.HdrCCState))
	LayerTypeNETH         = register(1805, "NETH", decodeAlone(bth.HdrNETH))
	LayerTypePETH         = register(1806, "PETH", decodeAlone(bth.HdrPETH))
	LayerTypeERTH         = register(1807, "ERTH", decodeAlone(bth.HdrERTH))
	LayerTypeEETH         = register(1808, "EETH", decodeAlone(bth.HdrEETH))
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

// extension is an extension header.
type extension interface {
	gopacket.SerializableLayer
	gopacket.DecodingLayer
	gopacket.Layer
}

// header is a layer type of an extension header and a function that makes its layer.
type header struct {
	gopacket.LayerType
	make func() extension
}

// extensions are the extension headers in the order of their bits in bth.Headers. init sets them, because the decoders of
// the layer types use them.
var extensions []header

func init() {
	layers.RegisterUDPPortLayerType(bth.UDPPort, LayerTypeBTH)
	layers.RegisterUDPPortLayerType(bth.MRCUDPPort, LayerTypeBTH)
	registerCarriers()
	extensions = []header{
		{LayerTypeXETH, func() extension { return &XETH{} }},
		{LayerTypeMETH, func() extension { return &METH{} }},
		{LayerTypeTSETH, func() extension { return &TSETH{} }},
		{LayerTypeDETH, func() extension { return &DETH{} }},
		{LayerTypeFETH, func() extension { return &FETH{} }},
		{LayerTypeRETH, func() extension { return &RETH{} }},
		{LayerTypeAtomicETH, func() extension { return &AtomicETH{} }},
		{LayerTypeAETH, func() extension { return &AETH{} }},
		{LayerTypeAtomicAckETH, func() extension { return &AtomicAckETH{} }},
		{LayerTypeImmDt, func() extension { return &ImmDt{} }},
		{LayerTypeIETH, func() extension { return &IETH{} }},
		{LayerTypeSETH, func() extension { return &SETH{} }},
		{LayerTypeCCState, func() extension { return &CCState{} }},
		{LayerTypeNETH, func() extension { return &NETH{} }},
		{LayerTypePETH, func() extension { return &PETH{} }},
		{LayerTypeERTH, func() extension { return &ERTH{} }},
		{LayerTypeEETH, func() extension { return &EETH{} }},
	}
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

// decodeAlone decodes one extension header followed by payload, for programs that start at such a layer.
func decodeAlone(h bth.Headers) gopacket.DecodeFunc {
	return func(data []byte, p gopacket.PacketBuilder) error {
		return chain(h).Decode(data, p)
	}
}
