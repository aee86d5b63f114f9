package layers

import (
	"crypto/subtle"

	"github.com/google/gopacket"

	"roced.io/roced/bth"
)

// XETH is the extension header of the extended transports (docs/reference/wire.md).
type XETH struct {
	ext
	bth.XETH
	// Reserved holds the reserved bits of the fields, at their offsets in the header.
	Reserved [bth.XETHMaxLen]byte
	// Rest holds the bytes that a later revision has added after the known fields.
	Rest []byte
}

// LayerType returns LayerTypeXETH.
func (x *XETH) LayerType() gopacket.LayerType { return LayerTypeXETH }

// CanDecode returns LayerTypeXETH.
func (x *XETH) CanDecode() gopacket.LayerClass { return LayerTypeXETH }

// NextLayerType returns the type of the next layer; see Stack.
func (x *XETH) NextLayerType() gopacket.LayerType { return x.next(bth.HdrXETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (x *XETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	n, err := x.Decode(data)
	if err != nil {
		df.SetTruncated()
		return err
	}
	known := x.Len()
	x.Rest = data[known:n]
	x.Reserved = [bth.XETHMaxLen]byte{}
	x.Put(x.Reserved[:])
	subtle.XORBytes(x.Reserved[:], x.Reserved[:], data[:known])
	x.Reserved[0] = 0 // the length depends on Rest
	x.split(data, n)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (x *XETH) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	n := x.Len()
	h, err := b.PrependBytes(n + len(x.Rest))
	if err != nil {
		return err
	}
	x.Put(h)
	subtle.XORBytes(h, h[:n], x.Reserved[:])
	h[0] += byte(len(x.Rest) / 4)
	copy(h[n:], x.Rest)
	return nil
}
