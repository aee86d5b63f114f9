// Package mad implements the wire formats of management datagrams (IBTA vol.1 chapters 13 and 16): the common header, the
// messages of the communication manager (class 0x07, chapter 12), and rdma_cm's header in their private data (annex A11).
// It does no I/O and allocates nothing per message.
//
// After decoding, private data is a view of the datagram at its full length. For encoding it may be shorter; it is padded
// with zeros.
//
// No promise: this package may change between releases.
package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of Decode.
var (
	ErrLength  = errors.New("mad: not 256 bytes")
	ErrVersion = errors.New("mad: unknown base version")
	ErrIPCM    = errors.New("mad: malformed IP CM header")
)

var be = binary.BigEndian

// QKey is the well-known Q_Key of queue pair 1 (IBTA vol.1 10.2.5).
const QKey = 0x80010000

// Versions of the headers (IBTA vol.1 13.4.2, 16.7.1).
const (
	baseVersion = 1
	// CMVersion is the class version of the communication manager.
	CMVersion = 2
)

// Header is the common MAD header (IBTA vol.1 13.4.2), 24 bytes.
type Header struct {
	Class        Class
	ClassVersion uint8
	Method       Method
	Status       Status
	TID          uint64 // transaction ID
	Attr         Attr
	AttrMod      uint32
}

// Decode reads the header of the MAD m.
func (h *Header) Decode(m []byte) error {
	if len(m) != Len {
		return fmt.Errorf("%w but %d", ErrLength, len(m))
	}
	if m[0] != baseVersion {
		return ErrVersion
	}
	*h = Header{
		Class: Class(m[1]), ClassVersion: m[2], Method: Method(m[3]), Status: Status(be.Uint16(m[4:])),
		TID: be.Uint64(m[8:]), Attr: Attr(be.Uint16(m[16:])), AttrMod: be.Uint32(m[20:]),
	}
	return nil
}

// Put writes the header at the start of the MAD m.
func (h *Header) Put(m []byte) {
	clear(m[:HeaderLen])
	m[0], m[1], m[2], m[3] = baseVersion, byte(h.Class), h.ClassVersion, byte(h.Method)
	be.PutUint16(m[4:], uint16(h.Status))
	be.PutUint64(m[8:], h.TID)
	be.PutUint16(m[16:], uint16(h.Attr))
	be.PutUint32(m[20:], h.AttrMod)
}

// CMHeader returns the header of a message of the communication manager.
func CMHeader(a Attr, tid uint64) Header {
	return Header{Class: ClassCM, ClassVersion: CMVersion, Method: MethodSend, TID: tid, Attr: a}
}

// body returns the message of the MAD m, cleared to be written.
func body(m []byte) []byte {
	b := m[HeaderLen:Len]
	clear(b)
	return b
}

// get24 and put24 act on the first three bytes of b.
func get24(b []byte) uint32 { return be.Uint32(b) >> 8 }

func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}

// ClassPortInfo describes an agent (IBTA vol.1 13.4.8.1), without redirection and traps.
type ClassPortInfo struct {
	BaseVersion, ClassVersion uint8
	Capabilities              uint16
	RespTime                  uint8 // 5 bits: answers take up to 4.096 us * 2^n
}

// Capability bits of the communication manager (IBTA vol.1 12.9.1).
const (
	CapReliableConnection   uint16 = 1 << 9
	CapUnreliableConnection uint16 = 1 << 12
	CapSIDR                 uint16 = 1 << 13
)

// Put writes p after the header of the MAD m.
func (p *ClassPortInfo) Put(m []byte) {
	b := body(m)
	b[0], b[1] = p.BaseVersion, p.ClassVersion
	be.PutUint16(b[2:], p.Capabilities)
	b[7] = p.RespTime & 0x1f
}

// Decode reads p after the header of the MAD m.
func (p *ClassPortInfo) Decode(m []byte) {
	b := m[HeaderLen:Len]
	*p = ClassPortInfo{BaseVersion: b[0], ClassVersion: b[1], Capabilities: be.Uint16(b[2:]), RespTime: b[7] & 0x1f}
}
