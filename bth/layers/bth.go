package layers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
)

// BTH is the base transport header (IBTA vol.1 9.2) with the trailer of the packet, pad and ICRC. It keeps reserved bits,
// so that a decoded packet serialises to its original bytes.
type BTH struct {
	layers.BaseLayer
	Opcode    bth.Opcode
	Solicited bool
	MigReq    bool
	PadCount  uint8 // 0 to 3
	TVer      uint8 // 0 to 15, must be 0
	PKey      uint16
	FECN      bool
	BECN      bool
	Reserved6 uint8 // low 6 bits of byte 4
	DestQP    bth.QPN
	AckReq    bool
	Reserved7 uint8 // low 7 bits of byte 8; of MRC, bit 5 marks retransmissions, bit 4 a TSETH
	PSN       bth.PSN

	Pad  []byte // the pad bytes; nil serialises as zeros
	ICRC uint32 // see bth.GetICRC

	datagram []byte // the whole UDP payload, for CheckICRC
	network  gopacket.SerializableLayer
	udp      *layers.UDP
}

const stampedBit = 0x10 // of Reserved7

// LayerType returns LayerTypeBTH.
func (b *BTH) LayerType() gopacket.LayerType { return LayerTypeBTH }

// CanDecode returns LayerTypeBTH.
func (b *BTH) CanDecode() gopacket.LayerClass { return LayerTypeBTH }

// NextLayerType returns the first extension header of the opcode, or the payload.
func (b *BTH) NextLayerType() gopacket.LayerType { return layerTypeOf(b.headers()) }

// DecodeFromBytes decodes a UDP payload. Pad and ICRC become fields and are not part of LayerPayload. An unknown opcode is
// not an error: the bytes after the BTH are payload then.
func (b *BTH) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < bth.BTHLen+bth.ICRCLen {
		return short("BTH and ICRC", data, bth.BTHLen+bth.ICRCLen, df)
	}
	b.decodeHeader(data)
	end := len(data) - bth.ICRCLen
	b.ICRC = bth.GetICRC(data[end:])
	if bth.BTHLen+int(b.PadCount) > end {
		return fmt.Errorf("BTH pad count %d in a packet of %d bytes: %w", b.PadCount, len(data), bth.ErrPad)
	}
	pad := end - int(b.PadCount)
	b.Pad = data[pad:end]
	b.BaseLayer = layers.BaseLayer{Contents: data[:bth.BTHLen], Payload: data[bth.BTHLen:pad]}
	b.datagram = data
	return nil
}

func (b *BTH) decodeHeader(data []byte) {
	b.Opcode = bth.Opcode(data[0])
	b.Solicited = data[1]&0x80 != 0
	b.MigReq = data[1]&0x40 != 0
	b.PadCount = data[1] >> 4 & 3
	b.TVer = data[1] & 0xf
	b.PKey = binary.BigEndian.Uint16(data[2:])
	b.FECN = data[4]&0x80 != 0
	b.BECN = data[4]&0x40 != 0
	b.Reserved6 = data[4] & 0x3f
	b.DestQP = bth.QPN(binary.BigEndian.Uint32(data[4:]) & 0xffffff)
	b.AckReq = data[8]&0x80 != 0
	b.Reserved7 = data[8] & 0x7f
	b.PSN = bth.MakePSN(binary.BigEndian.Uint32(data[8:]))
}

// headers returns the extension headers of the packet.
func (b *BTH) headers() bth.Headers {
	p := bth.Packet{Opcode: b.Opcode, Stamped: b.Reserved7&stampedBit != 0}
	return p.Headers()
}

func decodeBTH(data []byte, p gopacket.PacketBuilder) error {
	b := &BTH{}
	if err := b.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(b)
	return p.NextDecoder(chain(b.headers()))
}

// SetLayersForICRC sets the IP and UDP headers that the ICRC covers when SerializeTo computes checksums. FixLengths also
// applies to them, as in the packet itself.
func (b *BTH) SetLayersForICRC(ip gopacket.SerializableLayer, udp *layers.UDP) error {
	switch ip.(type) {
	case *layers.IPv4, *layers.IPv6:
	default:
		return fmt.Errorf("the ICRC needs an IPv4 or IPv6 layer, not %v", ip.LayerType())
	}
	b.network, b.udp = ip, udp
	return nil
}

// SerializeTo prepends the BTH to the content of b and appends pad and ICRC. FixLengths sets the pad count.
// ComputeChecksums computes the ICRC, for which SetLayersForICRC must have been called.
func (b *BTH) SerializeTo(buf gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if opts.FixLengths {
		b.PadCount = uint8(-len(buf.Bytes()) & 3)
	}
	if b.PadCount > 3 {
		return fmt.Errorf("BTH pad count %d: %w", b.PadCount, bth.ErrPad)
	}
	trailer, err := buf.AppendBytes(int(b.PadCount) + bth.ICRCLen)
	if err != nil {
		return err
	}
	clear(trailer)
	copy(trailer[:b.PadCount], b.Pad)
	bth.PutICRC(trailer[b.PadCount:], b.ICRC)
	header, err := buf.PrependBytes(bth.BTHLen)
	if err != nil {
		return err
	}
	b.putHeader(header)
	if !opts.ComputeChecksums {
		return nil
	}
	if b.ICRC, err = b.computeICRC(buf.Bytes(), opts); err != nil {
		return err
	}
	all := buf.Bytes()
	bth.PutICRC(all[len(all)-bth.ICRCLen:], b.ICRC)
	return nil
}

func (b *BTH) putHeader(h []byte) {
	h[0] = byte(b.Opcode)
	h[1] = flag(b.Solicited, 0x80) | flag(b.MigReq, 0x40) | b.PadCount<<4 | b.TVer&0xf
	binary.BigEndian.PutUint16(h[2:], b.PKey)
	binary.BigEndian.PutUint32(h[4:], uint32(b.DestQP))
	h[4] = flag(b.FECN, 0x80) | flag(b.BECN, 0x40) | b.Reserved6&0x3f
	binary.BigEndian.PutUint32(h[8:], b.PSN.Uint32())
	h[8] = flag(b.AckReq, 0x80) | b.Reserved7&0x7f
}

func flag(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}

// computeICRC serialises the IP and UDP headers before the UDP payload data and returns the ICRC, which does not cover
// checksums.
func (b *BTH) computeICRC(data []byte, opts gopacket.SerializeOptions) (uint32, error) {
	if b.network == nil || b.udp == nil {
		return 0, errors.New("BTH: the ICRC needs SetLayersForICRC")
	}
	buf := gopacket.NewSerializeBuffer()
	opts.ComputeChecksums = false
	if err := gopacket.SerializeLayers(buf, opts, b.network, b.udp, gopacket.Payload(data)); err != nil {
		return 0, err
	}
	all := buf.Bytes()
	l3 := len(all) - len(data) - bth.UDPLen
	if l3 < 0 || len(data) < bth.BTHLen+bth.ICRCLen || !isIPHeader(all[:l3]) {
		return 0, ErrNoBTH
	}
	crc := bth.ICRCStart(all[:l3], all[l3:], data[:bth.BTHLen])
	return bth.ICRCUpdate(crc, data[bth.BTHLen:len(data)-bth.ICRCLen]), nil
}

// Errors of CheckICRC for packets that it cannot verify.
var (
	ErrNoBTH     = errors.New("packet has no BTH after IP and UDP")
	ErrTruncated = errors.New("packet was not captured whole")
)

// CheckICRC returns nil if the ICRC of p is right and bth.ErrICRC if it is wrong. The IP and UDP headers are the last ones
// before the BTH, so that the ICRC of an encapsulated packet is checked.
func CheckICRC(p gopacket.Packet) error { return CheckLayers(p.Layers()) }

// CheckLayers verifies the ICRC like CheckICRC, for the layers of a packet.
func CheckLayers(all []gopacket.Layer) error {
	var l3 []byte // IP header with its extension headers
	var udp *layers.UDP
	for _, l := range all {
		switch l := l.(type) {
		case *layers.IPv4, *layers.IPv6:
			l3, udp = l.LayerContents(), nil
		case *layers.UDP:
			udp = l
		case *BTH:
			if l3 == nil || udp == nil {
				return ErrNoBTH
			}
			if int(udp.Length) > bth.UDPLen+len(l.datagram) {
				return ErrTruncated
			}
			return l.checkICRC(l3, udp.Contents)
		default:
			if l3 != nil {
				l3 = append(l3[:len(l3):len(l3)], l.LayerContents()...)
			}
		}
	}
	return ErrNoBTH
}

// CheckICRC verifies the ICRC like the function CheckICRC, for a layer that was decoded after the given IP and UDP layers. It
// covers the extension headers of IPv6 between them if both layers were decoded from one packet.
func (b *BTH) CheckICRC(ip, udp gopacket.Layer) error {
	return b.checkICRC(upTo(ip.LayerContents(), udp.LayerContents()), udp.LayerContents())
}

// upTo returns l3 with the bytes between it and udp, if both are parts of one packet. gopacket keeps the capacity of a packet in the
// slices of its layers.
func upTo(l3, udp []byte) []byte {
	n := cap(l3) - cap(udp)
	if n <= len(l3) || len(udp) == 0 || n >= cap(l3) || &l3[:n+1][n] != &udp[0] {
		return l3
	}
	return l3[:n]
}

func (b *BTH) checkICRC(l3, udp []byte) error {
	if !isIPHeader(l3) || len(udp) < bth.UDPLen || len(b.datagram) < bth.BTHLen+bth.ICRCLen {
		return ErrNoBTH
	}
	end := len(b.datagram) - bth.ICRCLen
	crc := bth.ICRCStart(l3, udp, b.datagram[:bth.BTHLen])
	if bth.ICRCUpdate(crc, b.datagram[bth.BTHLen:end]) != b.ICRC {
		return bth.ErrICRC
	}
	return nil
}

// isIPHeader protects ICRCStart, because gopacket does not check the version.
func isIPHeader(h []byte) bool {
	return len(h) >= 20 && h[0]>>4 == 4 || len(h) >= 40 && h[0]>>4 == 6
}
