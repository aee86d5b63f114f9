package bth

import (
	"encoding/binary"
	"errors"
)

// Bits of byte 8 of the BTH in packets of MRC.
const (
	bitReTx    = 0x20
	bitStamped = 0x10
)

// ErrTrimmed is the error of Decode for a WRITE of MRC that a switch has trimmed. The packet then has BTH, METH and, if
// Stamped, TSETH.
//
// Choice: a WRITE that ends before its RETH, or before the ICRC behind it, is trimmed. No source tells whether an ICRC
// follows the remaining headers, and it could not be that of the packet: callers must not check it.
var ErrTrimmed = errors.New("bth: trimmed packet of MRC")

// orTrimmed returns ErrTrimmed if err is ErrShort and the packet b still has what trimming leaves, else err.
func (p *Packet) orTrimmed(b []byte, err error) error {
	if err != ErrShort || len(b) < BTHLen || !p.Opcode.IsMRC() || !p.Opcode.IsWrite() {
		return err
	}
	if len(b) < BTHLen+(p.Headers()&(HdrMETH|HdrTSETH)).Len() {
		return err
	}
	return ErrTrimmed
}

// TrimmedLen returns the length to which switches trim the packet at the start of b, 0 if it is no WRITE of MRC.
func TrimmedLen(b []byte) int {
	switch {
	case len(b) < BTHLen || !Opcode(b[0]).IsMRC() || !Opcode(b[0]).IsWrite():
		return 0
	case b[8]&bitStamped != 0:
		return BTHLen + METHLen + TSETHLen
	}
	return BTHLen + METHLen
}

// Headers returns the extension headers of p: those of its opcode, and a TSETH if a packet of MRC is Stamped.
//
// Choice: the bit has a meaning in WRITEs only. In other packets it is ignored.
func (p *Packet) Headers() Headers {
	info := &infos[p.Opcode]
	h := info.Headers
	if p.stampLen(info) != 0 {
		h |= HdrTSETH
	}
	return h
}

// stampLen returns the length of the TSETH, if p has one.
func (p *Packet) stampLen(info *Info) int {
	if p.Stamped && info.Headers&HdrMETH != 0 {
		return TSETHLen
	}
	return 0
}

// decodeMRC reads the headers behind the BTH of b and returns the length of all, as DecodeHeaders. It reads MRC's own
// headers even if the others are missing.
func (p *Packet) decodeMRC(info *Info, b []byte) (int, error) {
	p.ReTx, p.Stamped = b[8]&bitReTx != 0, b[8]&bitStamped != 0
	at, n := p.lenMRC(info)
	if len(b) < at {
		return 0, ErrShort
	}
	p.decodeOwn(info.Headers, b[BTHLen:at])
	if len(b) < n {
		return 0, ErrShort
	}
	if n > at {
		p.decodeExt(ibtaHeaders(info.Headers), b[at:n])
	}
	return n, nil
}

func (p *Packet) decodeOwn(h Headers, b []byte) {
	switch {
	case h&HdrMETH != 0:
		p.METH.Decode(b)
		if p.Stamped {
			p.TSETH.Decode(b[METHLen:])
		}
	case h&HdrSETH != 0:
		p.SETH.Decode(b)
		p.CCState.Decode(b[SETHLen:])
	case h&HdrNETH != 0:
		p.NETH.Decode(b)
	case h&HdrPETH != 0:
		p.PETH.Decode(b)
	case h&HdrERTH != 0:
		p.ERTH.Decode(b)
	case h&HdrEETH != 0:
		p.EETH.Decode(b)
	}
}

// putMRC is PutHeaders for packets of MRC.
func (p *Packet) putMRC(info *Info, b []byte) int {
	at, n := p.lenMRC(info)
	b = b[:n]
	p.putBTH(b)
	b[8] |= bit(p.ReTx, bitReTx) | bit(p.Stamped, bitStamped)
	p.putOwn(info.Headers, b[BTHLen:])
	if n > at {
		p.putExt(ibtaHeaders(info.Headers), b[at:])
	}
	return n
}

func (p *Packet) putOwn(h Headers, b []byte) {
	switch {
	case h&HdrMETH != 0:
		p.METH.Put(b)
		if p.Stamped {
			p.TSETH.Put(b[METHLen:])
		}
	case h&HdrSETH != 0:
		p.SETH.Put(b)
		p.CCState.Put(b[SETHLen:])
	case h&HdrNETH != 0:
		p.NETH.Put(b)
	case h&HdrPETH != 0:
		p.PETH.Put(b)
	case h&HdrERTH != 0:
		p.ERTH.Put(b)
	case h&HdrEETH != 0:
		p.EETH.Put(b)
	}
}

// lenMRC returns the lengths of the BTH with MRC's own headers, and with all headers.
func (p *Packet) lenMRC(info *Info) (own, all int) {
	all = int(info.HeaderLen) + p.stampLen(info)
	return all - (info.Headers & (HdrRETH | HdrAETH | HdrImm)).Len(), all
}

// Decode reads the 4 bytes of a METH at the start of b.
func (h *METH) Decode(b []byte) {
	h.RQMSN, h.MSN = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
}

// Put writes the 4 bytes of the METH at the start of b.
func (h *METH) Put(b []byte) {
	binary.BigEndian.PutUint16(b, h.RQMSN)
	binary.BigEndian.PutUint16(b[2:], h.MSN)
}

// Decode reads the 4 bytes of a TSETH at the start of b. Reserved bits are left out, here and in the other headers.
func (h *TSETH) Decode(b []byte) {
	_ = b[TSETHLen-1]
	h.Timestamp = binary.BigEndian.Uint16(b)
	h.Coarse, h.Format = b[2]&0x80 != 0, b[3]&0xf
}

// Put writes the 4 bytes of the TSETH at the start of b.
func (h *TSETH) Put(b []byte) {
	_ = b[TSETHLen-1]
	binary.BigEndian.PutUint16(b, h.Timestamp)
	b[2], b[3] = bit(h.Coarse, 0x80), h.Format&0xf
}

const (
	sethMarkShift  = 5 // byte 1
	sethProbeReply = 0x02
	ccTypeShift    = 4 // byte 16 of SETH and NETH
)

// Decode reads the 28 bytes of a SETH at the start of b.
func (h *SETH) Decode(b []byte) {
	_ = b[SETHLen-1]
	h.Mark, h.ProbeReply = MRCMark(b[1]>>sethMarkShift&3), b[1]&sethProbeReply != 0
	h.AckOffset = int16(binary.BigEndian.Uint16(b[2:]))
	h.Entropy = binary.BigEndian.Uint32(b[4:])
	h.SrcContext, h.DestContext = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	h.Cack = PSN{be24(b[12:])}
	h.CCType, h.CCFlags, h.MPR = b[16]>>ccTypeShift, b[16]&0xf, b[17]
	h.SACKOffset = int16(binary.BigEndian.Uint16(b[18:]))
	h.Bitmap = binary.BigEndian.Uint64(b[20:])
}

// Put writes the 28 bytes of the SETH at the start of b.
func (h *SETH) Put(b []byte) {
	_ = b[SETHLen-1]
	b[0], b[1] = 0, byte(h.Mark&3)<<sethMarkShift|bit(h.ProbeReply, sethProbeReply)
	binary.BigEndian.PutUint16(b[2:], uint16(h.AckOffset))
	binary.BigEndian.PutUint32(b[4:], h.Entropy)
	binary.BigEndian.PutUint16(b[8:], h.SrcContext)
	binary.BigEndian.PutUint16(b[10:], h.DestContext)
	binary.BigEndian.PutUint32(b[12:], h.Cack.v)
	b[16], b[17] = h.CCType<<ccTypeShift|h.CCFlags&0xf, h.MPR
	binary.BigEndian.PutUint16(b[18:], uint16(h.SACKOffset))
	binary.BigEndian.PutUint64(b[20:], h.Bitmap)
}

// Decode reads the 8 bytes of a CCState at the start of b.
func (h *CCState) Decode(b []byte) {
	_ = b[CCStateLen-1]
	h.Timestamp = binary.BigEndian.Uint16(b)
	h.OutOfOrder = binary.BigEndian.Uint16(b[2:]) & 0x7fff
	h.Restore, h.Penalty = b[4]&0x80 != 0, b[4]&0x7f
	h.Received = be24(b[4:])
}

// Put writes the 8 bytes of the CCState at the start of b.
func (h *CCState) Put(b []byte) {
	_ = b[CCStateLen-1]
	binary.BigEndian.PutUint16(b, h.Timestamp)
	binary.BigEndian.PutUint16(b[2:], h.OutOfOrder&0x7fff)
	binary.BigEndian.PutUint32(b[4:], h.Received&psnMask)
	b[4] = bit(h.Restore, 0x80) | h.Penalty&0x7f
}

// Decode reads the 20 bytes of a NETH at the start of b.
func (h *NETH) Decode(b []byte) {
	_ = b[NETHLen-1]
	h.Reason, h.Vendor = MRCReason(b[2]), b[3]
	h.Entropy = binary.BigEndian.Uint32(b[4:])
	h.SrcContext, h.DestContext = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	h.PSN = PSN{be24(b[12:])}
	h.CCType, h.CCFlags = b[16]>>ccTypeShift, b[16]&0xf
	h.Timestamp = binary.BigEndian.Uint16(b[18:])
}

// Put writes the 20 bytes of the NETH at the start of b.
func (h *NETH) Put(b []byte) {
	_ = b[NETHLen-1]
	b[0], b[1], b[2], b[3] = 0, 0, byte(h.Reason), h.Vendor
	binary.BigEndian.PutUint32(b[4:], h.Entropy)
	binary.BigEndian.PutUint16(b[8:], h.SrcContext)
	binary.BigEndian.PutUint16(b[10:], h.DestContext)
	binary.BigEndian.PutUint32(b[12:], h.PSN.v)
	b[16], b[17] = h.CCType<<ccTypeShift|h.CCFlags&0xf, 0
	binary.BigEndian.PutUint16(b[18:], h.Timestamp)
}

// Decode reads the 16 bytes of a PETH at the start of b.
func (h *PETH) Decode(b []byte) {
	_ = b[PETHLen-1]
	h.Vendor, h.ProbeID = b[3], binary.BigEndian.Uint16(b[4:])
	h.SrcContext, h.DestContext = binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])
	h.TSETH.Decode(b[12:])
}

// Put writes the 16 bytes of the PETH at the start of b.
func (h *PETH) Put(b []byte) {
	clear(b[:PETHLen])
	b[3] = h.Vendor
	binary.BigEndian.PutUint16(b[4:], h.ProbeID)
	binary.BigEndian.PutUint16(b[8:], h.SrcContext)
	binary.BigEndian.PutUint16(b[10:], h.DestContext)
	h.TSETH.Put(b[12:])
}

// Decode reads the 16 bytes of an ERTH at the start of b.
func (h *ERTH) Decode(b []byte) {
	_ = b[ERTHLen-1]
	h.Op, h.Vendor = MRCEndpointOp(b[1]&3), b[3]
	h.PortMask = binary.BigEndian.Uint32(b[4:])
	h.TSETH.Decode(b[12:])
}

// Put writes the 16 bytes of the ERTH at the start of b.
func (h *ERTH) Put(b []byte) {
	clear(b[:ERTHLen])
	b[1], b[3] = byte(h.Op&3), h.Vendor
	binary.BigEndian.PutUint32(b[4:], h.PortMask)
	h.TSETH.Put(b[12:])
}

// eethOpShift is the position of the operation in byte 1 of an EETH.
//
// Choice: two sources have bits 3:2, one bits 5:4. Requesters must match responses by PSN, and ignore the operation.
const eethOpShift = 2

const eethTimestamp = 28 // offset

// Decode reads the 36 bytes of an EETH at the start of b.
func (h *EETH) Decode(b []byte) {
	_ = b[EETHLen-1]
	h.Op, h.Timestamp = MRCEndpointOp(b[1]>>eethOpShift&3), binary.BigEndian.Uint16(b[eethTimestamp:])
}

// Put writes the 36 bytes of the EETH at the start of b.
func (h *EETH) Put(b []byte) {
	clear(b[:EETHLen])
	b[1] = byte(h.Op&3) << eethOpShift
	binary.BigEndian.PutUint16(b[eethTimestamp:], h.Timestamp)
}
