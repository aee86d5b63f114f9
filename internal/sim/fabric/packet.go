// Package fabric is a simulated network: links, and switches with a shared buffer, priority
// flow control, ECN, classes of traffic and a choice of how they balance load. It moves
// descriptors of packets; what is in these only their endpoints know.
//
// The switches have clocks of their own: what a switch does concerns nobody before a link's delay
// has passed, so each of them does all that it has to do in that time at once (the lookahead of
// Chandy, Misra and Bryant), while what it looks at is in the caches. Whoever looks at a network
// from the engine's timers calls Engine.Sync before.
//
// A network belongs to one engine and so to one goroutine. It reads no clock, takes its random
// numbers from generators of its own with seeds of its own, and allocates nothing per packet.
package fabric

import (
	"unsafe"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/prefetch"
)

// Kind says what a descriptor stands for.
type Kind uint8

// Kinds of packets.
const (
	Data  Kind = iota // of an endpoint
	Pause             // priority flow control (IEEE 802.1Qbb): stop, or go on if Ref is zero
	Weave             // what switches that balance by ConWeave tell each other
)

// ECN codepoints (RFC 3168), as they stand in the IP header.
const (
	NotECT uint8 = 0
	ECT    uint8 = 2
	CE     uint8 = 3
)

// Classes is the number of priorities.
const Classes = 8

// Packet describes a packet on its way, in one line of a cache. It stays where it is from the
// sender to the receiver: queues and links are lists of packets.
type Packet struct {
	next *Packet     // behind it in its queue or on its link
	at   engine.Time // on a link: when its last bit arrives
	then engine.Time // on a link: when that of the next one does; in a queue by rank: its turn of coming

	Ref   uint32 // what its endpoints know it by; of a Pause, how many nanoseconds it holds
	Bytes uint32 // that it takes on a link
	Dst   uint32 // host
	Src   uint32 // host
	Hash  uint32 // of the flow
	QP    uint32 // of the destination
	Rank  uint32 // what is left of its message, for SRPT: low ranks go first
	sent  uint32 // ConWeave: when it left its first switch, or the TAIL before it did, in ns
	in    uint16 // port of the switch that it lies in
	Class uint8
	Kind  Kind
	ECN   uint8
	Hops  uint8 // switches that it has passed
	path  uint8 // of those that its first switch has chosen from
	flags flags
}

// flags are what else a packet says.
type flags uint8

const (
	lost flags = 1 << iota // a judge has said so
	cut                    // its payload has been trimmed away
	back                   // it tells its sender that it has been
	// ConWeave's header; of what kind Weave packets are.
	request
	tail
	rerouted
	epoch // two bits, the last
)

func (f flags) has(x flags) bool { return f&x != 0 }

// Cut reports whether a switch has trimmed the payload away.
func (p *Packet) Cut() bool { return p.flags.has(cut) }

// Back reports whether the packet tells its sender that it has been cut.
func (p *Packet) Back() bool { return p.flags.has(back) }

// Return makes a packet that has been cut tell its sender so.
func (p *Packet) Return() {
	p.Src, p.Dst, p.Hops = p.Dst, p.Src, 0
	p.flags |= back
}

// Again makes a packet that has come back go to its destination once more, as it was at first.
func (p *Packet) Again(bytes uint32, class uint8) {
	p.Src, p.Dst, p.Hops = p.Dst, p.Src, 0
	p.Bytes, p.Class, p.flags = bytes, class, 0
	if p.ECN == CE {
		p.ECN = ECT
	}
}

// queue is packets in the order of their coming. The zero value is empty.
type queue struct{ head, tail *Packet }

func (q *queue) push(p *Packet) {
	p.next = nil
	if q.head == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
}

// pop removes the first; there is one.
func (q *queue) pop() *Packet {
	p := q.head
	q.head = p.next
	return p
}

// soon tells that p will be looked at.
func (p *Packet) soon() {
	if p != nil {
		prefetch.Line(unsafe.Pointer(p))
	}
}

// len counts.
func (q *queue) len() (n int) {
	for p := q.head; p != nil; p = p.next {
		n++
	}
	return n
}

// pool has packets that are not in use: what was given back last is taken first.
type pool struct {
	unused *Packet
	used   int
}

const poolGrows = 512

func (s *pool) take() *Packet {
	if s.unused == nil {
		more := make([]Packet, poolGrows)
		for i := range more {
			s.give(&more[i])
		}
		s.used += poolGrows
	}
	p := s.unused
	s.unused = p.next
	s.used++
	return p
}

func (s *pool) give(p *Packet) {
	p.next, s.unused = s.unused, p
	s.used--
}

// Reason says why a packet was lost.
type Reason uint8

// Reasons.
const (
	Overflow   Reason = iota // no buffer for its class
	NoHeadroom               // a lossless class had no headroom left: thresholds are wrong
	LinkLoss                 // a link's losses
	Corrupted                // its FCS is wrong at the end of a link
	FaultRule                // what decides about a link's packets
	LinkDown                 // it was on a link that failed, or is behind it
	NoRoute                  // nowhere leads to its destination
	TooManyHops
	Reasons
)

// String returns the reason in words.
func (r Reason) String() string {
	return [...]string{"buffer overflow", "no headroom", "link loss", "corrupted", "fault rule", "link down", "no route", "too many hops"}[r]
}
