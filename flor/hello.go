package flor

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"roced.io/roced/flor/engine"
	"roced.io/roced/verbs"
)

// maxPairs is the maximum number of queue pairs of a connection. The private data of a REQ limits it.
const maxPairs = 3

// helloLen is the length of a hello. A REQ of rdma_cm has room for 56 bytes.
const helloLen = 54

// helloVersion is the version of the layout and of the protocol.
const helloVersion = 1

// hello is the greeting of one end to the other, in the private data of rdma_cm. Its layout in network byte order:
//
//	 0 "Fl" | version | flags: bit 0 RC
//	 4 log2 of the unit | log2 of Writes | Partials | queue pairs
//	 8 MaxSend, 4 B
//	12 inbox, 2 B | path MTU code | zero
//	16 number of the queue pair for acknowledgements, 4 B
//	20 token, 8 B
//	28 first global number, 8 B
//	36 number and first PSN of each queue pair, 3 B each
//
// Unused bytes are zero.
type hello struct {
	rc        bool
	unit      uint32
	writes    uint32
	partials  uint8
	maxSend   uint32
	inbox     uint16
	mtu       verbs.MTU
	ackQPN    uint32
	token     uint64
	firstGN   uint64
	n         int
	qpn, psns [maxPairs]uint32
}

// numbers returns the first numbers of the direction, derived from the first global number.
func (h *hello) numbers() engine.Numbers {
	return engine.Numbers{GN: h.firstGN, RN: uint32(h.firstGN >> 16), MID: uint32(h.firstGN>>40) & engine.MaxMessageID}
}

// append appends h to b.
func (h *hello) append(b []byte) []byte {
	be := binary.BigEndian
	flags := byte(0)
	if h.rc {
		flags = 1
	}
	b = append(b, 'F', 'l', helloVersion, flags,
		byte(bits.TrailingZeros32(h.unit)), byte(bits.TrailingZeros32(h.writes)), h.partials, byte(h.n))
	b = be.AppendUint32(b, h.maxSend)
	b = be.AppendUint16(b, h.inbox)
	b = append(b, byte(h.mtu), 0)
	b = be.AppendUint32(b, h.ackQPN)
	b = be.AppendUint64(b, h.token)
	b = be.AppendUint64(b, h.firstGN)
	for i := range maxPairs {
		b = append(b, byte(h.qpn[i]>>16), byte(h.qpn[i]>>8), byte(h.qpn[i]), byte(h.psns[i]>>16), byte(h.psns[i]>>8), byte(h.psns[i]))
	}
	return b
}

// parse reads the private data of a peer. rdma_cm pads it with zeros. Without an error, all values are valid.
func (h *hello) parse(b []byte) error {
	if len(b) < helloLen || b[0] != 'F' || b[1] != 'l' {
		return fmt.Errorf("%w: the peer does not speak Flor", ErrProtocol)
	}
	if b[2] != helloVersion {
		return fmt.Errorf("%w: the peer has version %d, this side %d", ErrProtocol, b[2], helloVersion)
	}
	be := binary.BigEndian
	*h = hello{rc: b[3] == 1, unit: 1 << (b[4] & 31), writes: 1 << (b[5] & 31), partials: b[6], n: int(b[7]), maxSend: be.Uint32(b[8:]),
		inbox: be.Uint16(b[12:]), mtu: verbs.MTU(b[14]), ackQPN: be.Uint32(b[16:]), token: be.Uint64(b[20:]), firstGN: be.Uint64(b[28:])}
	ok := b[3] <= 1 && b[4] < 32 && b[5] < 32 && b[15] == 0 && h.n >= 1 && h.n <= maxPairs && h.inbox > 0 &&
		h.mtu.Bytes() != 0 && validQPN(h.ackQPN)
	for i := range maxPairs {
		at := b[36+6*i:]
		h.qpn[i] = uint32(at[0])<<16 | uint32(at[1])<<8 | uint32(at[2])
		h.psns[i] = uint32(at[3])<<16 | uint32(at[4])<<8 | uint32(at[5])
		if i < h.n {
			ok = ok && validQPN(h.qpn[i])
			for k := range i {
				ok = ok && h.qpn[k] != h.qpn[i]
			}
		} else {
			ok = ok && h.qpn[i]|h.psns[i] == 0
		}
	}
	for _, x := range b[helloLen:] {
		ok = ok && x == 0
	}
	if !ok {
		return fmt.Errorf("%w: invalid fields in the hello message", ErrProtocol)
	}
	return nil
}

// validQPN reports whether a program's queue pair may have number n.
func validQPN(n uint32) bool { return n >= 2 && n < 1<<24-1 }

// agrees returns the reason why two ends cannot be connected, or nil.
func (h *hello) agrees(with *hello) error {
	for _, p := range []struct {
		what         string
		theirs, ours uint32
	}{{"RC", bit(with.rc), bit(h.rc)}, {"Unit", with.unit, h.unit}, {"MaxSend", with.maxSend, h.maxSend}, {"Writes", with.writes, h.writes},
		{"Partials", uint32(with.partials), uint32(h.partials)}, {"queue pairs", uint32(with.n), uint32(h.n)}} {
		if p.theirs != p.ours {
			return fmt.Errorf("%w: %s is %d at the peer, %d here: configure both sides alike", ErrProtocol, p.what, p.theirs, p.ours)
		}
	}
	return nil
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
