// Package layers teaches gopacket RoCEv2. A program that imports it, if only
// for its side effect, decodes UDP port 4791: gopacket.NewPacket yields a BTH
// layer, one layer for each extension header of the opcode, and the payload as
// gopacket.Payload. The pad and the ICRC, which trail the payload, are fields of
// the BTH layer; CheckICRC gives the verdict.
//
// Layers can also be serialised, and used with a gopacket.DecodingLayerParser
// (see Stack).
//
// gopacket wants the numbers of layer types to be unique in a program. This
// package uses 1791 to 1799: the port number less 3000, and those after it.
package layers

import (
	"fmt"

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
)

func init() {
	layers.RegisterUDPPortLayerType(bth.UDPPort, LayerTypeBTH)
}

func register(num int, name string, decode gopacket.DecodeFunc) gopacket.LayerType {
	return gopacket.RegisterLayerType(num, gopacket.LayerTypeMetadata{Name: name, Decoder: decode})
}

// extension is an extension header.
type extension interface {
	gopacket.SerializableLayer
	gopacket.DecodingLayer
	gopacket.Layer
}

// newExtension returns the layer of the first header of h and its type's bit.
func newExtension(h bth.Headers) (extension, bth.Headers) {
	switch first := h & -h; first {
	case bth.HdrXETH:
		return &XETH{}, first
	case bth.HdrDETH:
		return &DETH{}, first
	case bth.HdrFETH:
		return &FETH{}, first
	case bth.HdrRETH:
		return &RETH{}, first
	case bth.HdrAtomicETH:
		return &AtomicETH{}, first
	case bth.HdrAETH:
		return &AETH{}, first
	case bth.HdrAtomicAck:
		return &AtomicAckETH{}, first
	case bth.HdrImm:
		return &ImmDt{}, first
	default:
		return &IETH{}, first
	}
}

// layerTypeOf returns the layer type of the first header of h, that of the
// payload when h is empty.
func layerTypeOf(h bth.Headers) gopacket.LayerType {
	switch h & -h {
	case bth.HdrXETH:
		return LayerTypeXETH
	case bth.HdrDETH:
		return LayerTypeDETH
	case bth.HdrFETH:
		return LayerTypeFETH
	case bth.HdrRETH:
		return LayerTypeRETH
	case bth.HdrAtomicETH:
		return LayerTypeAtomicETH
	case bth.HdrAETH:
		return LayerTypeAETH
	case bth.HdrAtomicAck:
		return LayerTypeAtomicAckETH
	case bth.HdrImm:
		return LayerTypeImmDt
	case bth.HdrIETH:
		return LayerTypeIETH
	}
	return gopacket.LayerTypePayload
}

// chain decodes the extension headers in its set, then the payload. It carries
// from layer to layer what only the BTH knows: which headers follow.
type chain bth.Headers

// Decode implements gopacket.Decoder.
func (c chain) Decode(data []byte, p gopacket.PacketBuilder) error {
	if c == 0 {
		return gopacket.LayerTypePayload.Decode(data, p)
	}
	l, first := newExtension(bth.Headers(c))
	if err := l.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(l)
	return p.NextDecoder(c &^ chain(first))
}

// decodeAlone decodes one extension header followed by payload, for programs
// that start at such a layer.
func decodeAlone(h bth.Headers) gopacket.DecodeFunc {
	return func(data []byte, p gopacket.PacketBuilder) error {
		return chain(h).Decode(data, p)
	}
}

// short returns an error when data is shorter than n bytes and marks the packet.
func short(name string, data []byte, n int, df gopacket.DecodeFeedback) error {
	if len(data) >= n {
		return nil
	}
	df.SetTruncated()
	return fmt.Errorf("%s of %d bytes, must be %d: %w", name, len(data), n, bth.ErrShort)
}
