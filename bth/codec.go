package bth

import (
	"encoding/binary"
	"errors"
)

// Errors of Decode.
var (
	ErrShort  = errors.New("bth: packet shorter than its headers")
	ErrTVer   = errors.New("bth: transport header version is not 0")
	ErrOpcode = errors.New("bth: unknown opcode")
	ErrPad    = errors.New("bth: pad count does not fit the payload")
	ErrLength = errors.New("bth: payload length does not fit the opcode")
)

// Bits of the BTH (IBTA vol.1 9.2).
const (
	bitSolicited = 0x80 // byte 1
	bitMigReq    = 0x40
	padShift     = 4
	padMask      = 0x3
	tverMask     = 0x0f
	bitFECN      = 0x80 // byte 4, IBTA annex A17.9.3
	bitBECN      = 0x40
	bitAckReq    = 0x80 // byte 8
)

const cnpPayloadLen = 16

// be24 returns the low 24 bits of a big-endian word.
func be24(b []byte) uint32 { return binary.BigEndian.Uint32(b) & psnMask }

// Decode parses b, the whole UDP payload from the BTH to the ICRC. Payload becomes a view of b. Fields of headers that the
// opcode does not have keep their old values. Decode does not check the ICRC; see CheckICRC.
func (p *Packet) Decode(b []byte) error {
	n, err := p.DecodeHeaders(b)
	if err != nil {
		return p.orTrimmed(b, err)
	}
	end := len(b) - ICRCLen - int(b[1]>>padShift&padMask)
	if end < n {
		if len(b)-ICRCLen < n {
			return p.orTrimmed(b, ErrShort)
		}
		return ErrPad
	}
	// IBTA vol.1 9.2: the pad rounds the payload up to a multiple of 4. The length of each header is such a multiple, so
	// that of the packet must be one too.
	if len(b)%4 != 0 {
		return ErrPad
	}
	p.Payload = b[n:end:end]
	return p.checkPayload(len(b) - ICRCLen - n)
}

// checkPayload rejects a payload, of n bytes with pad, of an opcode without one (IBTA vol.1 9.7.4.1.6), and a CNP whose
// payload is not 16 bytes long (annex A17.9.3).
func (p *Packet) checkPayload(n int) error {
	if p.Opcode == OpcodeCNP && len(p.Payload) != cnpPayloadLen {
		return ErrLength
	}
	if n != 0 && !p.Opcode.HasPayload() {
		return ErrLength
	}
	return nil
}

// DecodeHeaders parses the BTH and the extension headers at the start of b and returns their length. It is for captures that
// hold only part of a packet: it sets Payload to nil and checks neither length nor pad.
func (p *Packet) DecodeHeaders(b []byte) (int, error) {
	if len(b) < BTHLen {
		return 0, ErrShort
	}
	p.decodeBTH(b)
	p.Payload = nil
	if b[1]&tverMask != 0 {
		return 0, ErrTVer
	}
	info := &infos[b[0]]
	n := int(info.HeaderLen)
	if n == 0 {
		return 0, ErrOpcode
	}
	at := BTHLen
	if info.flags&fVariable != 0 {
		if info.flags&fMRC != 0 {
			return p.decodeMRC(info, b)
		}
		x, err := p.Ext.Decode(b[BTHLen:])
		if err != nil {
			return 0, err
		}
		at, n = at+x, n+x
	}
	if len(b) < n {
		return 0, ErrShort
	}
	if n > at {
		p.decodeExt(ibtaHeaders(info.Headers), b[at:n])
	}
	return n, nil
}

// DecodePart is DecodeHeaders for the first part of a packet, which may end inside its headers. The fields that it lacks are
// zero. DecodePart returns ErrShort if b lacks the length of a header.
func (p *Packet) DecodePart(b []byte) (int, error) {
	n, err := p.DecodeHeaders(b)
	if err != ErrShort || len(b) < BTHLen {
		return n, err
	}
	var full [MaxHeaderLen]byte
	copy(full[:], b)
	if n, err = p.DecodeHeaders(full[:]); err != nil {
		return 0, ErrShort
	}
	return n, nil
}

func (p *Packet) decodeBTH(b []byte) {
	_ = b[BTHLen-1]
	p.Opcode = Opcode(b[0])
	p.Solicited = b[1]&bitSolicited != 0
	p.MigReq = b[1]&bitMigReq != 0
	p.PKey = binary.BigEndian.Uint16(b[2:])
	p.FECN = b[4]&bitFECN != 0
	p.BECN = b[4]&bitBECN != 0
	p.DestQP = QPN(be24(b[4:]))
	p.AckReq = b[8]&bitAckReq != 0
	p.PSN = PSN{be24(b[8:])}
}

func (p *Packet) decodeExt(h ibtaHeaders, b []byte) {
	if h.has(HdrDETH) {
		p.DETH.Decode(b)
		b = b[DETHLen:]
	}
	if h.has(HdrFETH) {
		p.FETH.Decode(b)
		b = b[FETHLen:]
	}
	if h.has(HdrRETH) {
		p.RETH.Decode(b)
		b = b[RETHLen:]
	}
	if h.has(HdrAtomicETH) {
		p.AtomicETH.Decode(b)
		b = b[AtomicETHLen:]
	}
	if h.has(HdrAETH) {
		p.AETH.Decode(b)
		b = b[AETHLen:]
	}
	if h.has(HdrAtomicAck) {
		p.AtomicAck = binary.BigEndian.Uint64(b)
		b = b[AtomicAckLen:]
	}
	if h.has(HdrImm) {
		p.Imm = binary.BigEndian.Uint32(b)
		b = b[ImmDtLen:]
	}
	if h.has(HdrIETH) {
		p.IETH = binary.BigEndian.Uint32(b)
	}
}

// HeaderLen returns the bytes of the BTH and the extension headers, 0 for an
// unknown opcode.
func (p *Packet) HeaderLen() int {
	info := &infos[p.Opcode]
	n := int(info.HeaderLen)
	switch {
	case info.flags&fVariable == 0:
	case info.flags&fMRC != 0:
		n += p.stampLen(info)
	default:
		n += p.Ext.Len()
	}
	return n
}

// PadLen returns the pad bytes that follow the payload, 0 to 3.
func (p *Packet) PadLen() int { return -len(p.Payload) & 3 }

// WireLen returns the bytes of the UDP payload: headers, payload, pad and ICRC.
func (p *Packet) WireLen() int {
	return p.HeaderLen() + (len(p.Payload)+3)&^3 + ICRCLen
}

// PutHeaders writes the BTH, with the pad count of the payload, and the
// extension headers at the start of b and returns their length. Reserved bits
// are zero. It panics when b is shorter than HeaderLen or the opcode is unknown.
func (p *Packet) PutHeaders(b []byte) int {
	info := &infos[p.Opcode]
	n := int(info.HeaderLen)
	at := BTHLen
	if info.flags&fVariable != 0 {
		if info.flags&fMRC != 0 {
			return p.putMRC(info, b)
		}
		x := p.Ext.Put(b[BTHLen:])
		at, n = at+x, n+x
	}
	b = b[:n]
	p.putBTH(b)
	if n > at {
		p.putExt(ibtaHeaders(info.Headers), b[at:])
	}
	return n
}

func (p *Packet) putBTH(b []byte) {
	_ = b[BTHLen-1]
	b[0] = byte(p.Opcode)
	b[1] = byte(p.PadLen()<<padShift) | bit(p.Solicited, bitSolicited) | bit(p.MigReq, bitMigReq)
	binary.BigEndian.PutUint16(b[2:], p.PKey)
	binary.BigEndian.PutUint32(b[4:], uint32(p.DestQP))
	b[4] = bit(p.FECN, bitFECN) | bit(p.BECN, bitBECN)
	binary.BigEndian.PutUint32(b[8:], p.PSN.v)
	b[8] = bit(p.AckReq, bitAckReq)
}

func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}

func (p *Packet) putExt(h ibtaHeaders, b []byte) {
	if h.has(HdrDETH) {
		p.DETH.Put(b)
		b = b[DETHLen:]
	}
	if h.has(HdrFETH) {
		p.FETH.Put(b)
		b = b[FETHLen:]
	}
	if h.has(HdrRETH) {
		p.RETH.Put(b)
		b = b[RETHLen:]
	}
	if h.has(HdrAtomicETH) {
		p.AtomicETH.Put(b)
		b = b[AtomicETHLen:]
	}
	if h.has(HdrAETH) {
		p.AETH.Put(b)
		b = b[AETHLen:]
	}
	if h.has(HdrAtomicAck) {
		binary.BigEndian.PutUint64(b, p.AtomicAck)
		b = b[AtomicAckLen:]
	}
	if h.has(HdrImm) {
		binary.BigEndian.PutUint32(b, p.Imm)
		b = b[ImmDtLen:]
	}
	if h.has(HdrIETH) {
		binary.BigEndian.PutUint32(b, p.IETH)
	}
}

var zeros [4]byte

// AppendTo appends the headers, the payload, its pad and four zero bytes for the ICRC to b. SealICRC sets the ICRC when the
// IP and UDP headers are known.
func (p *Packet) AppendTo(b []byte) []byte {
	var h [MaxHeaderLen]byte
	n := p.PutHeaders(h[:])
	b = append(b, h[:n]...)
	b = append(b, p.Payload...)
	b = append(b, zeros[:p.PadLen()]...)
	return append(b, zeros[:ICRCLen]...)
}

// DefaultPKey is the partition key of full members of the default partition.
const DefaultPKey = 0xffff

var cnpPayload [cnpPayloadLen]byte

// SetCNP makes p a congestion notification packet to dest: BECN set, PSN 0,
// default partition, 16 reserved bytes of zero (IBTA annex A17.9.3).
func (p *Packet) SetCNP(dest QPN) {
	*p = Packet{Opcode: OpcodeCNP, BECN: true, PKey: DefaultPKey, DestQP: dest, Payload: cnpPayload[:]}
}
