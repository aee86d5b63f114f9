package layers

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
)

// ext is what the extension header layers share. within is the BTH whose opcode
// says what follows, nil where gopacket.NewPacket decodes.
type ext struct {
	layers.BaseLayer
	within *BTH
}

// next returns the layer type after the header h: the next one of the opcode,
// or the payload.
func (e *ext) next(h bth.Headers) gopacket.LayerType {
	if e.within == nil {
		return gopacket.LayerTypePayload
	}
	return layerTypeOf(e.within.Opcode.Info().Headers &^ (h<<1 - 1))
}

func (e *ext) split(data []byte, n int) {
	e.BaseLayer = layers.BaseLayer{Contents: data[:n], Payload: data[n:]}
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

// NextLayerType returns what follows; see Stack.
func (d *DETH) NextLayerType() gopacket.LayerType { return d.next(bth.HdrDETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (d *DETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("DETH", data, bth.DETHLen, df); err != nil {
		return err
	}
	d.Decode(data)
	d.Reserved = data[4]
	d.split(data, bth.DETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (d *DETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.DETHLen)
	if err != nil {
		return err
	}
	d.Put(h)
	h[4] = d.Reserved
	return nil
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

// NextLayerType returns what follows; see Stack.
func (f *FETH) NextLayerType() gopacket.LayerType { return f.next(bth.HdrFETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (f *FETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("FETH", data, bth.FETHLen, df); err != nil {
		return err
	}
	f.Decode(data)
	f.Reserved = binary.BigEndian.Uint32(data) >> 6
	f.split(data, bth.FETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (f *FETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.FETHLen)
	if err == nil {
		f.Put(h)
		binary.BigEndian.PutUint32(h, binary.BigEndian.Uint32(h)|f.Reserved<<6)
	}
	return err
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

// NextLayerType returns what follows; see Stack.
func (r *RETH) NextLayerType() gopacket.LayerType { return r.next(bth.HdrRETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (r *RETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("RETH", data, bth.RETHLen, df); err != nil {
		return err
	}
	r.Decode(data)
	r.split(data, bth.RETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (r *RETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.RETHLen)
	if err == nil {
		r.Put(h)
	}
	return err
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

// NextLayerType returns what follows; see Stack.
func (a *AtomicETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAtomicETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AtomicETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("AtomicETH", data, bth.AtomicETHLen, df); err != nil {
		return err
	}
	a.Decode(data)
	a.split(data, bth.AtomicETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AtomicETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.AtomicETHLen)
	if err == nil {
		a.Put(h)
	}
	return err
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

// NextLayerType returns what follows; see Stack.
func (a *AETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("AETH", data, bth.AETHLen, df); err != nil {
		return err
	}
	a.Decode(data)
	a.split(data, bth.AETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.AETHLen)
	if err == nil {
		a.Put(h)
	}
	return err
}

// AtomicAckETH holds the value that memory had before an atomic operation (IBTA
// vol.1 9.3.5.3).
type AtomicAckETH struct {
	ext
	Original uint64
}

// LayerType returns LayerTypeAtomicAckETH.
func (a *AtomicAckETH) LayerType() gopacket.LayerType { return LayerTypeAtomicAckETH }

// CanDecode returns LayerTypeAtomicAckETH.
func (a *AtomicAckETH) CanDecode() gopacket.LayerClass { return LayerTypeAtomicAckETH }

// NextLayerType returns what follows; see Stack.
func (a *AtomicAckETH) NextLayerType() gopacket.LayerType { return a.next(bth.HdrAtomicAck) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (a *AtomicAckETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("AtomicAckETH", data, bth.AtomicAckLen, df); err != nil {
		return err
	}
	a.Original = binary.BigEndian.Uint64(data)
	a.split(data, bth.AtomicAckLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (a *AtomicAckETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.AtomicAckLen)
	if err == nil {
		binary.BigEndian.PutUint64(h, a.Original)
	}
	return err
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

// NextLayerType returns what follows; see Stack.
func (i *ImmDt) NextLayerType() gopacket.LayerType { return i.next(bth.HdrImm) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (i *ImmDt) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("ImmDt", data, bth.ImmDtLen, df); err != nil {
		return err
	}
	i.Imm = binary.BigEndian.Uint32(data)
	i.split(data, bth.ImmDtLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (i *ImmDt) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.ImmDtLen)
	if err == nil {
		binary.BigEndian.PutUint32(h, i.Imm)
	}
	return err
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

// NextLayerType returns what follows; see Stack.
func (i *IETH) NextLayerType() gopacket.LayerType { return i.next(bth.HdrIETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (i *IETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if err := short("IETH", data, bth.IETHLen, df); err != nil {
		return err
	}
	i.RKey = binary.BigEndian.Uint32(data)
	i.split(data, bth.IETHLen)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (i *IETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h, err := b.PrependBytes(bth.IETHLen)
	if err == nil {
		binary.BigEndian.PutUint32(h, i.RKey)
	}
	return err
}
