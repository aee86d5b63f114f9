package engine

import (
	"encoding/binary"
	"errors"
	"time"
)

// Parse errors. The engine refuses such a header, immediate or acknowledgement as a whole.
var (
	ErrShort     = errors.New("flor: packet too short")
	ErrMalformed = errors.New("flor: malformed packet")
)

// Widths of the immediate's fields (Flor A.1.1).
const (
	midBits    = 21
	offsetBits = 10

	// MaxMessageID is the highest message id; 0 follows it.
	MaxMessageID = 1<<midBits - 1
	// MaxChunks is the number of units of the longest message.
	MaxChunks = 1 << offsetBits
)

// Imm is the immediate of a WRITE_WITH_IMM. It is the reliable sequence number of a WRITE WQE: a hint, a message id and
// the chunk's offset in units (Flor A.1.1).
type Imm uint32

const immHint Imm = 1 << (midBits + offsetBits)

// MakeImm returns the immediate of a chunk. mid and offset wrap at their widths.
func MakeImm(hint bool, mid, offset uint32) Imm {
	i := Imm(mid&MaxMessageID)<<offsetBits | Imm(offset&(MaxChunks-1))
	if hint {
		i |= immHint
	}
	return i
}

// Hint reports whether the WQE is the last one in the congestion window; the receiver acknowledges it at once.
func (i Imm) Hint() bool { return i&immHint != 0 }

// MessageID returns the id of the chunk's message.
func (i Imm) MessageID() uint32 { return uint32(i>>offsetBits) & MaxMessageID }

// Offset returns the chunk's offset in units.
func (i Imm) Offset() uint32 { return uint32(i) & (MaxChunks - 1) }

// midDiff returns a-b in the circle of message ids, from -2^20 to 2^20-1.
func midDiff(a, b uint32) int { return int(int32((a-b)<<(32-midBits)) >> (32 - midBits)) }

// Kind is the kind of a SEND.
type Kind uint8

// Kinds of SENDs.
const (
	// KindMessage carries a chunk of a message of at most Config.MaxSend bytes.
	KindMessage Kind = 1 + iota
	// KindRequest requests memory for a message to be sent by WRITE (Flor 3.2).
	KindRequest
	// KindGrant answers a request with the memory's address and key.
	KindGrant
	// KindRewrite carries a chunk first sent by WRITE (Flor 5, two-sided retransmission).
	KindRewrite
)

// HeaderLen is the length of Header in bytes.
const HeaderLen = 32

// Header is the first part of each SEND (Flor 5). The paper does not define its layout. This engine uses, in network
// byte order,
//
//	 0 kind | flags: bit 0 hint | zero, 2 B
//	 4 reliable sequence number, 4 B
//	 8 global sequence number, 8 B
//	16 message: id, length, offset in bytes, tag, 4 B each
//	   request: id, length, 4 B each; 4 B zero; tag, 4 B
//	   grant:   id, key, 4 B each; address, 8 B
//	   rewrite: immediate of the WRITE, without hint, 4 B; 12 B zero
//
// Zero bytes must be zero, so that each header has exactly one encoding.
type Header struct {
	Kind Kind
	Hint bool
	RN   uint32 // reliable number: equal for all transmissions of a chunk
	GN   uint64 // global number: unique per transmission

	Message uint32 // id; of KindRewrite the Imm
	Tag     uint32 // user's tag: KindMessage, KindRequest
	Length  uint32 // length of the whole message: KindMessage, KindRequest
	Offset  uint32 // KindMessage, in bytes
	Key     uint32 // KindGrant
	Addr    uint64 // KindGrant
}

// Put writes h to the first HeaderLen bytes of b.
func (h *Header) Put(b []byte) {
	b = b[:HeaderLen]
	clear(b)
	be := binary.BigEndian
	b[0] = byte(h.Kind)
	if h.Hint {
		b[1] = 1
	}
	be.PutUint32(b[4:], h.RN)
	be.PutUint64(b[8:], h.GN)
	be.PutUint32(b[16:], h.Message)
	switch h.Kind {
	case KindMessage:
		be.PutUint32(b[20:], h.Length)
		be.PutUint32(b[24:], h.Offset)
		be.PutUint32(b[28:], h.Tag)
	case KindRequest:
		be.PutUint32(b[20:], h.Length)
		be.PutUint32(b[28:], h.Tag)
	case KindGrant:
		be.PutUint32(b[20:], h.Key)
		be.PutUint64(b[24:], h.Addr)
	}
}

// Parse reads the header of a SEND.
func (h *Header) Parse(b []byte) error {
	if len(b) < HeaderLen {
		return ErrShort
	}
	be := binary.BigEndian
	*h = Header{Kind: Kind(b[0]), Hint: b[1] == 1, RN: be.Uint32(b[4:]), GN: be.Uint64(b[8:]), Message: be.Uint32(b[16:])}
	zero := uint64(b[1]>>1) | uint64(be.Uint16(b[2:]))
	second, rest := be.Uint32(b[20:]), be.Uint64(b[24:])
	switch h.Kind {
	case KindMessage:
		h.Length, h.Offset, h.Tag = second, uint32(rest>>32), uint32(rest)
	case KindRequest:
		h.Length, h.Tag, zero = second, uint32(rest), zero|rest>>32|uint64(h.Message>>midBits)
	case KindGrant:
		h.Key, h.Addr, zero = second, rest, zero|uint64(h.Message>>midBits)
	case KindRewrite:
		zero |= uint64(second) | rest | uint64(Imm(h.Message)&immHint)
	default:
		return ErrMalformed
	}
	if zero != 0 {
		return ErrMalformed
	}
	return nil
}

// Lengths of acknowledgements (Flor A.1.2).
const (
	ackHeader = 24
	// MaxAcked is the maximum number of WQEs in one acknowledgement.
	MaxAcked = 32
	// MaxAckLen is the length of the longest acknowledgement.
	MaxAckLen = ackHeader + 4*MaxAcked
)

// Ack is a software acknowledgement (Flor A.1.2, figure 15). In network byte order it contains:
//
//   - the number of the queue pair of the acknowledged WQEs, 4 B
//   - a bitmap, 4 B
//   - the least acknowledged global number, 8 B
//   - T3'-T2 in nanoseconds, 8 B
//   - 4 B for each WQE
//
// The most significant bit of the bitmap belongs to the first number. If the bit is set, the number is a SEND's global
// number minus the least one. Otherwise it is the reliable number of a WRITE.
//
// The zero value acknowledges nothing.
type Ack struct {
	QPN   uint32
	Delay time.Duration // T3'-T2: from the arrival of the last WQE named to the posting of this acknowledgement

	n       int
	sends   uint32
	least   uint64 // valid if sends is not zero
	numbers [MaxAcked]uint64
}

// Len returns the number of WQEs named.
func (a *Ack) Len() int { return a.n }

// At returns the i-th number, and whether it is the global number of a SEND.
func (a *Ack) At(i int) (number uint64, send bool) { return a.numbers[i], a.sends>>(31-i)&1 != 0 }

// Least is the least acknowledged global number, if there is one.
func (a *Ack) Least() (gn uint64, ok bool) { return a.least, a.sends != 0 }

// AddWrite adds a WRITE. There must be room.
func (a *Ack) AddWrite(i Imm) {
	a.numbers[a.n] = uint64(i)
	a.n++
}

// AddSend adds a SEND. There must be room. It reports success: one acknowledgement cannot name global numbers that are
// 2^32 or more apart (Flor A.1.2).
func (a *Ack) AddSend(gn uint64) bool {
	least := a.least
	if a.sends == 0 || int64(gn-least) < 0 {
		least = gn
	}
	if gn-least > 1<<32-1 {
		return false
	}
	for i := range a.n {
		if n, send := a.At(i); send && n-least > 1<<32-1 {
			return false
		}
	}
	a.least = least
	a.numbers[a.n] = gn
	a.sends |= 1 << (31 - a.n)
	a.n++
	return true
}

// Reset removes all numbers.
func (a *Ack) Reset() { a.n, a.sends, a.least, a.Delay = 0, 0, 0, 0 }

// Append appends the wire format of a to b. It must name at least one WQE.
func (a *Ack) Append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(b, a.QPN)
	b = be.AppendUint32(b, a.sends)
	b = be.AppendUint64(b, a.least)
	b = be.AppendUint64(b, uint64(max(a.Delay, 0)))
	for i := range a.n {
		n, send := a.At(i)
		if send {
			n -= a.least
		}
		b = be.AppendUint32(b, uint32(n))
	}
	return b
}

// Parse reads an acknowledgement. The least global number must be that of a named SEND, and 0 if there is none.
func (a *Ack) Parse(b []byte) error {
	if len(b) < ackHeader+4 {
		return ErrShort
	}
	n := (len(b) - ackHeader) / 4
	if len(b)%4 != 0 || n > MaxAcked {
		return ErrMalformed
	}
	be := binary.BigEndian
	a.QPN, a.sends, a.least, a.n = be.Uint32(b), be.Uint32(b[4:]), be.Uint64(b[8:]), n
	delay := be.Uint64(b[16:])
	a.Delay = time.Duration(delay)
	if a.Delay < 0 || a.QPN>>24 != 0 || a.sends<<n != 0 {
		return ErrMalformed
	}
	least := a.sends == 0 && a.least == 0
	for i := range n {
		v := be.Uint32(b[ackHeader+4*i:])
		a.numbers[i] = uint64(v)
		if a.sends>>(31-i)&1 != 0 {
			a.numbers[i] += a.least
			least = least || v == 0
		}
	}
	if !least {
		return ErrMalformed
	}
	return nil
}
