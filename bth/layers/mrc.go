package layers

import (
	"crypto/subtle"

	"github.com/google/gopacket"

	"roced.io/roced/bth"
)

// reserved decodes a header of n bytes. It puts the reserved bits into rest, at their offsets in the header.
func (e *ext) reserved(t gopacket.LayerType, rest, data []byte, df gopacket.DecodeFeedback, decode, put func([]byte)) error {
	return e.fixed(t, len(rest), data, df, func(b []byte) {
		decode(b)
		put(rest)
		subtle.XORBytes(rest, rest, b)
	})
}

// prependReserved writes a header with the reserved bits in rest.
func prependReserved(b gopacket.SerializeBuffer, rest []byte, put func([]byte)) error {
	return prepend(b, len(rest), func(h []byte) {
		put(h)
		subtle.XORBytes(h, h, rest)
	})
}

// METH is the message extended transport header of MRC.
type METH struct {
	ext
	bth.METH
}

// LayerType returns LayerTypeMETH.
func (m *METH) LayerType() gopacket.LayerType { return LayerTypeMETH }

// CanDecode returns LayerTypeMETH.
func (m *METH) CanDecode() gopacket.LayerClass { return LayerTypeMETH }

// NextLayerType returns the type of the next layer; see Stack.
func (m *METH) NextLayerType() gopacket.LayerType { return m.next(bth.HdrMETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (m *METH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return m.fixed(LayerTypeMETH, bth.METHLen, data, df, m.Decode)
}

// SerializeTo implements gopacket.SerializableLayer.
func (m *METH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.METHLen, m.Put)
}

// TSETH is the timestamp extended transport header of MRC.
type TSETH struct {
	ext
	bth.TSETH
	Reserved [bth.TSETHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeTSETH.
func (t *TSETH) LayerType() gopacket.LayerType { return LayerTypeTSETH }

// CanDecode returns LayerTypeTSETH.
func (t *TSETH) CanDecode() gopacket.LayerClass { return LayerTypeTSETH }

// NextLayerType returns the type of the next layer; see Stack.
func (t *TSETH) NextLayerType() gopacket.LayerType { return t.next(bth.HdrTSETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (t *TSETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return t.reserved(LayerTypeTSETH, t.Reserved[:], data, df, t.Decode, t.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (t *TSETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, t.Reserved[:], t.Put)
}

// SETH is the SACK extended transport header of MRC.
type SETH struct {
	ext
	bth.SETH
	Reserved [bth.SETHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeSETH.
func (s *SETH) LayerType() gopacket.LayerType { return LayerTypeSETH }

// CanDecode returns LayerTypeSETH.
func (s *SETH) CanDecode() gopacket.LayerClass { return LayerTypeSETH }

// NextLayerType returns the type of the next layer; see Stack.
func (s *SETH) NextLayerType() gopacket.LayerType { return s.next(bth.HdrSETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (s *SETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return s.reserved(LayerTypeSETH, s.Reserved[:], data, df, s.Decode, s.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (s *SETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, s.Reserved[:], s.Put)
}

// CCState is the congestion control state of MRC.
type CCState struct {
	ext
	bth.CCState
	Reserved [bth.CCStateLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeCCState.
func (c *CCState) LayerType() gopacket.LayerType { return LayerTypeCCState }

// CanDecode returns LayerTypeCCState.
func (c *CCState) CanDecode() gopacket.LayerClass { return LayerTypeCCState }

// NextLayerType returns the type of the next layer; see Stack.
func (c *CCState) NextLayerType() gopacket.LayerType { return c.next(bth.HdrCCState) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (c *CCState) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return c.reserved(LayerTypeCCState, c.Reserved[:], data, df, c.Decode, c.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (c *CCState) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, c.Reserved[:], c.Put)
}

// NETH is the NACK extended transport header of MRC.
type NETH struct {
	ext
	bth.NETH
	Reserved [bth.NETHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeNETH.
func (n *NETH) LayerType() gopacket.LayerType { return LayerTypeNETH }

// CanDecode returns LayerTypeNETH.
func (n *NETH) CanDecode() gopacket.LayerClass { return LayerTypeNETH }

// NextLayerType returns the type of the next layer; see Stack.
func (n *NETH) NextLayerType() gopacket.LayerType { return n.next(bth.HdrNETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (n *NETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return n.reserved(LayerTypeNETH, n.Reserved[:], data, df, n.Decode, n.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (n *NETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, n.Reserved[:], n.Put)
}

// PETH is the probe extended transport header of MRC.
type PETH struct {
	ext
	bth.PETH
	Reserved [bth.PETHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypePETH.
func (p *PETH) LayerType() gopacket.LayerType { return LayerTypePETH }

// CanDecode returns LayerTypePETH.
func (p *PETH) CanDecode() gopacket.LayerClass { return LayerTypePETH }

// NextLayerType returns the type of the next layer; see Stack.
func (p *PETH) NextLayerType() gopacket.LayerType { return p.next(bth.HdrPETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (p *PETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return p.reserved(LayerTypePETH, p.Reserved[:], data, df, p.Decode, p.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (p *PETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, p.Reserved[:], p.Put)
}

// ERTH is the endpoint request extended transport header of MRC.
type ERTH struct {
	ext
	bth.ERTH
	Reserved [bth.ERTHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeERTH.
func (e *ERTH) LayerType() gopacket.LayerType { return LayerTypeERTH }

// CanDecode returns LayerTypeERTH.
func (e *ERTH) CanDecode() gopacket.LayerClass { return LayerTypeERTH }

// NextLayerType returns the type of the next layer; see Stack.
func (e *ERTH) NextLayerType() gopacket.LayerType { return e.next(bth.HdrERTH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (e *ERTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return e.reserved(LayerTypeERTH, e.Reserved[:], data, df, e.Decode, e.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (e *ERTH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, e.Reserved[:], e.Put)
}

// EETH is the endpoint response extended transport header of MRC.
type EETH struct {
	ext
	bth.EETH
	Reserved [bth.EETHLen]byte // reserved bits, at their offsets
}

// LayerType returns LayerTypeEETH.
func (e *EETH) LayerType() gopacket.LayerType { return LayerTypeEETH }

// CanDecode returns LayerTypeEETH.
func (e *EETH) CanDecode() gopacket.LayerClass { return LayerTypeEETH }

// NextLayerType returns the type of the next layer; see Stack.
func (e *EETH) NextLayerType() gopacket.LayerType { return e.next(bth.HdrEETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (e *EETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return e.reserved(LayerTypeEETH, e.Reserved[:], data, df, e.Decode, e.Put)
}

// SerializeTo implements gopacket.SerializableLayer.
func (e *EETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prependReserved(b, e.Reserved[:], e.Put)
}
