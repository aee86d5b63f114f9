package bth

import (
	"encoding/binary"
	"errors"
)

// Packets of the extended transports (docs/reference/wire.md) have opcodes of the range that IBTA vol.1 table 38 reserves for
// manufacturers. TransportExt with an operation of RC is that operation behind an extension header, which the standard
// headers follow. MRC has 0xc0 to 0xdf of the range.
const (
	TransportExt Opcode = 0xe0
	// OpcodeExtAck acknowledges requests: BTH, extension header, AETH.
	OpcodeExtAck = TransportExt | OpAcknowledge
	// OpcodeExtReadAck acknowledges READ responses and ATOMIC ACKNOWLEDGEs likewise:
	// IRN 5.2.
	OpcodeExtReadAck Opcode = 0xff
)

// Profile is the transport that an extension header belongs to.
type Profile uint8

// Profiles.
const (
	ProfileRC Profile = iota // standard: no extension header
	ProfileIRN
	ProfileMELO
	ProfileMPRDMA
	ProfileEunomia
	ProfileMRC // MRC has packets of its own, without extension header

	// FirstOwnProfile is the first of the kinds for transports of other programs (profile.Register).
	FirstOwnProfile Profile = 128
)

// Extended reports whether packets have the extension header.
func (p Profile) Extended() bool { return p != ProfileRC && p != ProfileMRC }

// XFlags are the flags of an extension header and the set of its fields.
type XFlags uint16

// Flags of the extension header. The flags from XHasMsg on mean that a field is present, in the order of the fields.
const (
	XReTx    XFlags = 1 << iota // a retransmission, or acknowledges one (MP-RDMA 3.1)
	XSync                       // the operation waits for all packets before it: synchronise (MP-RDMA 3.4)
	XTail                       // the last packet of the connection so far (Eunomia 3.2.1)
	XECE                        // acknowledges a packet that was marked CE (MP-RDMA 3.1)
	XRefused                    // acknowledges a packet that was dropped because it could not be tracked
	_
	XHasOwn    // the last field: bytes of the profile's own, instead of holes
	XHasMsg    // MSN and the packet's offset in its message, iPSN
	XHasRecvSN // recv_WQE_SN (IRN 5.3)
	XHasReadSN // read_WQE_SN (IRN 5.3)
	XHasHead   // Head, the first PSN of the connection (Eunomia 3.2.1)
	XHasSACK   // the PSN that is acknowledged selectively
	XHasPath   // the virtual path that is acknowledged, a UDP source port (MP-RDMA 3.1)
	XHasHole1  // at most three holes (MELO 3.2.4)
	XHasHole2
	XHasHole3

	xUnknown = XFlags(1 << 5)
)

// MaxOwn is the maximum number of bytes that a profile adds to the extension header.
const MaxOwn = 8 * MaxHoles

// XETH is the extension header. Fields without their flag are meaningless.
type XETH struct {
	Profile Profile
	OwnLen  uint8 // bytes of its own, a multiple of 4; see SetOwn
	Flags   XFlags
	MSN     uint32 // 24 bits
	Offset  uint32 // iPSN: packets of the message before this one, 24 bits
	RecvSN  uint32 // 24 bits
	ReadSN  uint32 // 24 bits
	Head    PSN
	SACK    PSN
	Path    uint16 // UDP source port
	// Holes are the holes. With XHasOwn, they store the words of the profile's own bytes, so that the header stays small.
	Holes [MaxHoles]Hole
}

// Lengths of the extension header in bytes.
const (
	xethVersion = 2
	xethFixed   = 4
	XETHMaxLen  = xethFixed + 8 + 4 + 4 + 4 + 4 + 4 + 8*MaxHoles
)

// Errors of Decode for extension headers.
var (
	ErrExtVersion = errors.New("bth: unknown version of the extension header")
	ErrExtFlags   = errors.New("bth: extension header with unknown or inconsistent flags")
	ErrExtField   = errors.New("bth: field of the extension header out of range")
)

// HoleCount returns the number of holes of h.
func (h *XETH) HoleCount() int {
	switch {
	case h.Flags&XHasHole3 != 0:
		return 3
	case h.Flags&XHasHole2 != 0:
		return 2
	case h.Flags&XHasHole1 != 0:
		return 1
	}
	return 0
}

// SetHoles copies up to MaxHoles holes to h and sets their flags.
func (h *XETH) SetHoles(holes []Hole) {
	h.Flags &^= XHasHole1 | XHasHole2 | XHasHole3
	for i := range copy(h.Holes[:], holes) {
		h.Flags |= XHasHole1 << i
	}
}

// ownWord returns word i of the profile's own bytes.
func (h *XETH) ownWord(i int) *uint32 {
	if i%2 == 0 {
		return &h.Holes[i/2].Start.v
	}
	return &h.Holes[i/2].Len
}

// SetOwn sets the profile's own bytes, which replace the holes, and the flag. Their number must be a multiple of 4 from 4 to
// MaxOwn.
func (h *XETH) SetOwn(b []byte) {
	h.Flags = h.Flags&^(XHasHole1|XHasHole2|XHasHole3) | XHasOwn
	h.OwnLen = uint8(len(b))
	for i := range len(b) / 4 {
		*h.ownWord(i) = binary.BigEndian.Uint32(b[4*i:])
	}
}

// Own stores the profile's own bytes in b and returns them, none without XHasOwn.
func (h *XETH) Own(b *[MaxOwn]byte) []byte {
	if h.Flags&XHasOwn == 0 {
		return nil
	}
	for i := range int(h.OwnLen / 4) {
		binary.BigEndian.PutUint32(b[4*i:], *h.ownWord(i))
	}
	return b[:h.OwnLen]
}

// Len returns the length of h on the wire in bytes.
func (h *XETH) Len() int {
	if h.Flags&XHasOwn != 0 {
		return h.Flags.len() + int(h.OwnLen)
	}
	return h.Flags.len()
}

// len returns the length in bytes of a header with these flags, without the profile's own bytes.
func (f XFlags) len() int {
	n := xethFixed
	if f&XHasMsg != 0 {
		n += 8
	}
	for _, word := range [...]XFlags{XHasRecvSN, XHasReadSN, XHasHead, XHasSACK, XHasPath} {
		if f&word != 0 {
			n += 4
		}
	}
	for _, hole := range [...]XFlags{XHasHole1, XHasHole2, XHasHole3} {
		if f&hole != 0 {
			n += 8
		}
	}
	return n
}

// sensible reports whether all flags are known, no hole flag is set without the ones before it, and only profiles of other
// programs have bytes of their own, instead of holes.
func (f XFlags) sensible(p Profile) bool {
	holes := f / XHasHole1
	return f&xUnknown == 0 && holes&(holes+1) == 0 && (f&XHasOwn == 0 || holes == 0 && p >= FirstOwnProfile)
}

// Decode reads an extension header at the start of b and returns its length. It skips bytes that a later revision adds after
// the known fields, unless XHasOwn says that they are the profile's own.
func (h *XETH) Decode(b []byte) (int, error) {
	if len(b) < xethFixed {
		return 0, ErrShort
	}
	if b[0]>>4 != xethVersion {
		return 0, ErrExtVersion
	}
	h.Profile = Profile(b[1])
	h.Flags = XFlags(binary.BigEndian.Uint16(b[2:]))
	if !h.Flags.sensible(h.Profile) {
		return 0, ErrExtFlags
	}
	n, known := 4*int(b[0]&0xf), h.Flags.len()
	if n < known || n > len(b) {
		return 0, ErrShort
	}
	if h.Flags&XHasOwn != 0 {
		if n == known || n > known+MaxOwn {
			return 0, ErrExtField
		}
		h.SetOwn(b[known:n])
	}
	return n, h.decodeFields(b[xethFixed:])
}

// decodeFields reads the fields according to the flags and ignores reserved bits.
func (h *XETH) decodeFields(b []byte) error {
	word := func(f XFlags, to *uint32) {
		if h.Flags&f != 0 {
			*to = be24(b)
			b = b[4:]
		}
	}
	word(XHasMsg, &h.MSN)
	word(XHasMsg, &h.Offset)
	word(XHasRecvSN, &h.RecvSN)
	word(XHasReadSN, &h.ReadSN)
	word(XHasHead, &h.Head.v)
	word(XHasSACK, &h.SACK.v)
	if h.Flags&XHasPath != 0 {
		h.Path = binary.BigEndian.Uint16(b[2:])
		b = b[4:]
	}
	for i := range h.HoleCount() {
		g := &h.Holes[i]
		g.Start, g.Len = PSN{be24(b)}, be24(b[4:])
		if g.Len == 0 {
			return ErrExtField
		}
		b = b[8:]
	}
	return nil
}

// Put writes h at the start of b, with reserved bits zero, and returns its length. It panics if b is shorter than Len.
func (h *XETH) Put(b []byte) int {
	n := h.Len()
	b = b[:n]
	b[0] = xethVersion<<4 | byte(n/4)
	b[1] = byte(h.Profile)
	binary.BigEndian.PutUint16(b[2:], uint16(h.Flags))
	b = b[xethFixed:]
	word := func(f XFlags, v uint32) {
		if h.Flags&f != 0 {
			binary.BigEndian.PutUint32(b, v&psnMask)
			b = b[4:]
		}
	}
	word(XHasMsg, h.MSN)
	word(XHasMsg, h.Offset)
	word(XHasRecvSN, h.RecvSN)
	word(XHasReadSN, h.ReadSN)
	word(XHasHead, h.Head.v)
	word(XHasSACK, h.SACK.v)
	word(XHasPath, uint32(h.Path))
	for i := range h.HoleCount() {
		binary.BigEndian.PutUint32(b, h.Holes[i].Start.v)
		binary.BigEndian.PutUint32(b[4:], h.Holes[i].Len&psnMask)
		b = b[8:]
	}
	if h.Flags&XHasOwn != 0 {
		for i := range int(h.OwnLen / 4) {
			binary.BigEndian.PutUint32(b[4*i:], *h.ownWord(i))
		}
	}
	return n
}

// MaxHoles is the maximum number of holes in an acknowledgement (MELO 3.2.4).
const MaxHoles = 3

// Hole is a run of PSNs that have not arrived.
type Hole struct {
	Start PSN
	Len   uint32 // 24 bits, not zero
}
