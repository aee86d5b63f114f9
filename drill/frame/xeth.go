package frame

import (
	"encoding/binary"
	"errors"

	"roced.io/roced/bth"
)

type transportHeader struct {
	bit bth.Headers
	hdr header
}

// transportHeaders maps the extension headers of an opcode to the headers of this package, in the order on the wire.
var transportHeaders = []transportHeader{
	{bth.HdrMETH, hdrMETH}, {bth.HdrTSETH, hdrTSETH}, {bth.HdrDETH, hdrDETH}, {bth.HdrFETH, hdrFETH}, {bth.HdrRETH, hdrRETH},
	{bth.HdrAtomicETH, hdrAtomicETH}, {bth.HdrAETH, hdrAETH}, {bth.HdrAtomicAck, hdrAtomicAck}, {bth.HdrImm, hdrImm}, {bth.HdrIETH, hdrIETH},
	{bth.HdrSETH, hdrSETH}, {bth.HdrCCState, hdrCCState}, {bth.HdrNETH, hdrNETH}, {bth.HdrPETH, hdrPETH}, {bth.HdrERTH, hdrERTH},
	{bth.HdrEETH, hdrEETH},
}

// The extension header of the extended transports (docs/reference/wire.md): a word, and parts whose flags it has.
const (
	extVersion   = 2
	extFirstFlag = 7 // the number of the flag of hdrExtMsg; those of the parts behind it follow
)

// errExtension says that the extension header is malformed.
var errExtension = errors.New("malformed extension header")

// parseExtension finds the parts of the extension header at at, and returns its end.
func (f *Frame) parseExtension(at int) (int, error) {
	if at+lengths[hdrExtension] > f.off[hdrICRC] || f.Bytes[at]>>4 != extVersion {
		return 0, errExtension
	}
	f.off[hdrExtension] = at
	end, flags := at+4*int(f.Bytes[at]&0xf), binary.BigEndian.Uint16(f.Bytes[at+2:])
	at += lengths[hdrExtension]
	for h := hdrExtMsg; h <= hdrExtHole3; h++ {
		if flags>>(extFirstFlag+h-hdrExtMsg)&1 != 0 {
			f.off[h] = at
			at += lengths[h]
		}
	}
	if at > end || end > f.off[hdrICRC] {
		return 0, errExtension
	}
	return end, nil
}

// placeExtension places the extension header, with the parts of which the specification names a field.
func (s *Spec) placeExtension(place func(header, int)) {
	place(hdrExtension, lengths[hdrExtension])
	for h := hdrExtMsg; h <= hdrExtHole3; h++ {
		for _, v := range s.Fields {
			if x := byName[v.Name]; x != nil && x[0].hdr == h {
				place(h, lengths[h])
				break
			}
		}
	}
}

// defaultExtension writes version, length and the flags of parts.
func (f *Frame) defaultExtension() {
	flags, n := uint16(0), lengths[hdrExtension]
	for h := hdrExtMsg; h <= hdrExtHole3; h++ {
		if f.has(h) {
			flags |= 1 << (extFirstFlag + h - hdrExtMsg)
			n += lengths[h]
		}
	}
	f.set("x.version", extVersion)
	f.set("x.length", uint64(n/4))
	binary.BigEndian.PutUint16(f.Bytes[f.off[hdrExtension]+2:], flags)
}
