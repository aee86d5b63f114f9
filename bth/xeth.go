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
)

// Extended reports whether packets have the extension header.
func (p Profile) Extended() bool { return p != ProfileRC }

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
	_
	XHasMsg    // MSN and the packet's offset in its message, iPSN
	XHasRecvSN // recv_WQE_SN (IRN 5.3)
	XHasReadSN // read_WQE_SN (IRN 5.3)
	XHasHead   // Head, the first PSN of the connection (Eunomia 3.2.1)
	XHasSACK   // the PSN that is acknowledged selectively
	XHasPath   // the virtual path that is acknowledged, a UDP source port (MP-RDMA 3.1)
	XHasHole1  // at most three holes (MELO 3.2.4)
	XHasHole2
	XHasHole3

	xUnknown = XFlags(1<<5 | 1<<6)
)

// XETH is the extension header. Fields without their flag are meaningless.
type XETH struct {
	Profile Profile
	Flags   XFlags
	MSN     uint32 // 24 bits
	Offset  uint32 // iPSN: packets of the message before this one, 24 bits
	RecvSN  uint32 // 24 bits
	ReadSN  uint32 // 24 bits
	Head    PSN
	SACK    PSN
	Path    uint16 // UDP source port
	Holes   [MaxHoles]Hole
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

// Len returns the length of h on the wire in bytes.
func (h *XETH) Len() int { return h.Flags.len() }

// len returns the length in bytes of a header with these flags.
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

// sensible reports whether all flags are known and no hole flag is set without the ones before it.
func (f XFlags) sensible() bool {
	holes := f / XHasHole1
	return f&xUnknown == 0 && holes&(holes+1) == 0
}

// Decode reads an extension header at the start of b and returns its length. It skips bytes that a later revision adds after
// the known fields.
func (h *XETH) Decode(b []byte) (int, error) {
	if len(b) < xethFixed {
		return 0, ErrShort
	}
	if b[0]>>4 != xethVersion {
		return 0, ErrExtVersion
	}
	h.Profile = Profile(b[1])
	h.Flags = XFlags(binary.BigEndian.Uint16(b[2:]))
	if !h.Flags.sensible() {
		return 0, ErrExtFlags
	}
	n := 4 * int(b[0]&0xf)
	if n < h.Len() || n > len(b) {
		return 0, ErrShort
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
	return n
}

// MaxHoles is the maximum number of holes in an acknowledgement (MELO 3.2.4).
const MaxHoles = 3

// Hole is a run of PSNs that have not arrived.
type Hole struct {
	Start PSN
	Len   uint32 // 24 bits, not zero
}
