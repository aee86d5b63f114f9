package layers

import (
	"github.com/google/gopacket"

	"roced/bth"
)

// XETH is the extension header of the extended transports (docs/wire.md).
type XETH struct {
	ext
	bth.XETH
	// Rest is what a later revision has put behind the fields that are known.
	Rest []byte
}

// LayerType returns LayerTypeXETH.
func (x *XETH) LayerType() gopacket.LayerType { return LayerTypeXETH }

// CanDecode returns LayerTypeXETH.
func (x *XETH) CanDecode() gopacket.LayerClass { return LayerTypeXETH }

// NextLayerType returns what follows; see Stack.
func (x *XETH) NextLayerType() gopacket.LayerType { return x.next(bth.HdrXETH) }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (x *XETH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	n, err := x.Decode(data)
	if err != nil {
		df.SetTruncated()
		return err
	}
	x.Rest = data[x.Len():n]
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
	h[0] += byte(len(x.Rest) / 4)
	copy(h[n:], x.Rest)
	return nil
}
