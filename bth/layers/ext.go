package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
)

// ext is the common part of the extension header layers. within is the BTH whose opcode determines the next header; it is
// nil where gopacket.NewPacket decodes.
type ext struct {
	layers.BaseLayer
	within *BTH
}

// next returns the layer type after the header h: the next header of the opcode, or the payload.
func (e *ext) next(h bth.Headers) gopacket.LayerType {
	if e.within == nil {
		return gopacket.LayerTypePayload
	}
	return layerTypeOf(e.within.headers() &^ (h<<1 - 1))
}

func (e *ext) setBTH(b *BTH) { e.within = b }

func (e *ext) split(data []byte, n int) {
	e.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
}

// fixed decodes a header of the fixed length n.
func (e *ext) fixed(t gopacket.LayerType, n int, data []byte, df gopacket.DecodeFeedback, decode func([]byte)) error {
	if len(data) < n {
		return short(t.String(), data, n, df)
	}
	decode(data)
	e.split(data, n)
	return nil
}

// short marks a packet as truncated and returns the error for a header of n bytes.
func short(name string, data []byte, n int, df gopacket.DecodeFeedback) error {
	df.SetTruncated()
	return fmt.Errorf("%s of %d bytes, must be %d: %w", name, len(data), n, bth.ErrShort)
}

// prepend writes a header of n bytes.
func prepend(b gopacket.SerializeBuffer, n int, put func([]byte)) error {
	h, err := b.PrependBytes(n)
	if err == nil {
		put(h)
	}
	return err
}

// DETH is the datagram extended transport header (IBTA vol.1 9.3.2).
type DETH struct {
	ext
	bth.DETH
	Reserved uint8 // byte 4
}

// LayerType returns LayerTypeDETH.
func (d *DETH) LayerType() gopacket.LayerType { return LayerTypeDETH }

// CanDecode returns LayerTypeDETH.
func (d *DETH) CanDecode() gopacket.LayerClass { return LayerTypeDETH }

// NextLayerType returns the type of the next layer; see Stack.
func (d *DETH) NextLayerType() gopacket.LayerType { return d.next(bth.HdrDETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (d *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return d.fixed(LayerTypeDETH, bth.DETHLen, data, df, func(b []byte) {
		d.Decode(b)
		d.Reserved = b[4]
	})
}

// SerializeTo implements gopacket.SerializableLayer.
func (d *DETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.DETHLen, func(h []byte) {
		d.Put(h)
		h[4] = d.Reserved
	})
}

// FETH is the FLUSH extended transport header (IBTA vol.1 annex A19).
type FETH struct {
	ext
	bth.FETH
	Reserved uint32 // upper 26 bits
}

// LayerType returns LayerTypeFETH.
func (f *FETH) LayerType() gopacket.LayerType { return LayerTypeFETH }

// CanDecode returns LayerTypeFETH.
func (f *FETH) CanDecode() gopacket.LayerClass { return LayerTypeFETH }

// NextLayerType returns the type of the next layer; see Stack.
func (f *FETH) NextLayerType() gopacket.LayerType { return f.next(bth.HdrFETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (f *FETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return f.fixed(LayerTypeFETH, bth.FETHLen, data, df, func(b []byte) {
		f.Decode(b)
		f.Reserved = binary.BigEndian.Uint32(b) >> 6
	})
}

// SerializeTo implements gopacket.SerializableLayer.
func (f *FETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.FETHLen, func(h []byte) {
		f.Put(h)
		binary.BigEndian.PutUint32(h, binary.BigEndian.Uint32(h)|f.Reserved<<6)
	})
}

// RETH is the RDMA extended transport header (IBTA vol.1 9.3.3).
type RETH struct {
	ext
	bth.RETH
}

// LayerType returns LayerTypeRETH.
func (r *RETH) LayerType() gopacket.LayerType { return LayerTypeRETH }

// CanDecode returns LayerTypeRETH.
func (r *RETH) CanDecode() gopacket.LayerClass { return LayerTypeRETH }

// NextLayerType returns the type of the next layer; see Stack.
func (r *RETH) NextLayerType() gopacket.LayerType { return r.next(bth.HdrRETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (r *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return r.fixed(LayerTypeRETH, bth.RETHLen, data, df, r.Decode)
}

// SerializeTo implements gopacket.SerializableLayer.
func (r *RETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.RETHLen, r.Put)
}

// AtomicETH is the atomic extended transport header (IBTA vol.1 9.3.4).
type AtomicETH struct {
	ext
	bth.AtomicETH
}

// LayerType returns LayerTypeAtomicETH.
func (a *AtomicETH) LayerType() gopacket.LayerType { return LayerTypeAtomicETH }

// CanDecode returns LayerTypeAtomicETH.
func (a *AtomicETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicETH }

// NextLayerType returns the type of the next layer; see Stack.
func (a *AtomicETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAtomicETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return a.fixed(LayerTypeAtomicETH, bth.AtomicETHLen, data, df, a.Decode)
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AtomicETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.AtomicETHLen, a.Put)
}

// AETH is the ACK extended transport header (IBTA vol.1 9.3.5).
type AETH struct {
	ext
	bth.AETH
}

// LayerType returns LayerTypeAETH.
func (a *AETH) LayerType() gopacket.LayerType { return LayerTypeAETH }

// CanDecode returns LayerTypeAETH.
func (a *AETH) CanDecode() gopacket.LayerClass { return LayerTypeAETH }

// NextLayerType returns the type of the next layer; see Stack.
func (a *AETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return a.fixed(LayerTypeAETH, bth.AETHLen, data, df, a.Decode)
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.AETHLen, a.Put)
}

// AtomicAckETH holds the value of the memory before an atomic operation (IBTA vol.1 9.3.5.3).
type AtomicAckETH struct {
	ext
	Original uint64
}

// LayerType returns LayerTypeAtomicAckETH.
func (a *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// CanDecode returns LayerTypeAtomicAckETH.
func (a *AtomicAckETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicAckETH }

// NextLayerType returns the type of the next layer; see Stack.
func (a *AtomicAckETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAtomicAck) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return a.fixed(LayerTypeAtomicAckETH, bth.AtomicAckLen, data, df, func(b []byte) { a.Original = binary.BigEndian.Uint64(b) })
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AtomicAckETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.AtomicAckLen, func(h []byte) { binary.BigEndian.PutUint64(h, a.Original) })
}

// ImmDt is the immediate data (IBTA vol.1 9.3.6).
type ImmDt struct {
	ext
	Imm uint32
}

// LayerType returns LayerTypeImmDt.
func (i *ImmDt) LayerType() gopacket.LayerType { return LayerTypeImmDt }

// CanDecode returns LayerTypeImmDt.
func (i *ImmDt) CanDecode() gopacket.LayerClass { return LayerTypeImmDt }

// NextLayerType returns the type of the next layer; see Stack.
func (i *ImmDt) NextLayerType() gopacket.LayerType { return i.next(bth.HdrImm) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (i *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return i.fixed(LayerTypeImmDt, bth.ImmDtLen, data, df, func(b []byte) { i.Imm = binary.BigEndian.Uint32(b) })
}

// SerializeTo implements gopacket.SerializableLayer.
func (i *ImmDt) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.ImmDtLen, func(h []byte) { binary.BigEndian.PutUint32(h, i.Imm) })
}

// IETH is the invalidate extended transport header (IBTA vol.1 9.3.7).
type IETH struct {
	ext
	RKey uint32
}

// LayerType returns LayerTypeIETH.
func (i *IETH) LayerType() gopacket.LayerType { return LayerTypeIETH }

// CanDecode returns LayerTypeIETH.
func (i *IETH) CanDecode() gopacket.LayerClass { return LayerTypeIETH }

// NextLayerType returns the type of the next layer; see Stack.
func (i *IETH) NextLayerType() gopacket.LayerType { return i.next(bth.HdrIETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (i *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	return i.fixed(LayerTypeIETH, bth.IETHLen, data, df, func(b []byte) { i.RKey = binary.BigEndian.Uint32(b) })
}

// SerializeTo implements gopacket.SerializableLayer.
func (i *IETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	return prepend(b, bth.IETHLen, func(h []byte) { binary.BigEndian.PutUint32(h, i.RKey) })
}
