// Package fabric is a simulated network: links, and switches with a shared buffer, priority flow control, ECN, traffic
// classes and load balancing. It moves packet descriptors; only the endpoints know the packets' contents.
//
// The switches have clocks of their own: a switch affects other nodes only after a link's delay. So each switch
// processes all its events of that time in a row, while its state is in the caches (the lookahead of Chandy, Misra and
// Bryant). Timers of the engine must call Engine.Sync before they read the network.
//
// A network belongs to one engine and so to one goroutine; if it has several parts, each of them does. It reads no clock,
// has its own seeded random generators, and allocates nothing per packet.
package fabric

import (
	"unsafe"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/prefetch"
)

// Kind is the kind of a packet.
type Kind uint8

// Kinds of packets.
const (
	Data  Kind = iota // of an endpoint
	Pause             // priority flow control (IEEE 802.1Qbb): pause, or resume if Ref is zero
	Weave             // messages between switches that balance by ConWeave
)

// ECN codepoints (RFC 3168), with their values in the IP header.
const (
	NotECT uint8 = 0
	ECT    uint8 = 2
	CE     uint8 = 3
)

// Classes is the number of priorities.
const Classes = 8

// Packet describes a packet on its way, in one cache line. Its address does not change between sender and receiver:
// queues and links are lists of packets.
type Packet struct {
	next *Packet     // the next packet in the queue or on the link
	at   engine.Time // on a link: arrival time of its last bit
	then engine.Time // on a link: arrival time of the next packet; in a ranked queue: sequence number

	Ref   uint32 // the endpoints' reference; of a Pause its duration in nanoseconds
	Bytes uint32 // on a link
	Dst   uint32 // host
	Src   uint32 // host
	Hash  uint32 // of the flow; with Explicit the number of the path from here
	QP    uint32 // at the destination
	Rank  uint32 // remaining bytes of its message, for SRPT: low ranks leave first
	sent  uint32 // ConWeave: time in ns at which it, or the preceding TAIL, left its first switch
	in    uint16 // ingress port of the current switch
	Class uint8
	Kind  Kind
	ECN   uint8
	Hops  uint8 // number of switches so far
	path  uint8 // selected by its first switch
	flags flags
}

// flags are further properties of a packet.
type flags uint8

const (
	lost    flags = 1 << iota // a Judge decided that it is lost
	cut                       // a switch trimmed its payload
	cutLast                   // the last switch before its destination did
	// ConWeave's header, and the type of Weave packets.
	request
	tail
	rerouted
	epoch // the last two bits
)

// back is on a trimmed packet that returns to its sender.
const back = cut | cutLast

func (f flags) has(x flags) bool { return f&x != 0 }

// Cut reports whether a switch trimmed the payload.
func (p *Packet) Cut() bool { return p.flags.has(cut | cutLast) }

// LastHop reports whether the last switch before the destination trimmed the payload.
func (p *Packet) LastHop() bool { return p.flags&back == cutLast }

// Back reports whether the packet returns to its sender because it was trimmed.
func (p *Packet) Back() bool { return p.flags&back == back }

// Return sends a trimmed packet back to its sender.
func (p *Packet) Return() {
	p.Src, p.Dst, p.Hops = p.Dst, p.Src, 0
	p.flags |= back
}

// Again sends a returned packet to its destination once more, in its original form.
func (p *Packet) Again(bytes uint32, class uint8) {
	p.Src, p.Dst, p.Hops = p.Dst, p.Src, 0
	p.Bytes, p.Class, p.flags = bytes, class, 0
	if p.ECN == CE {
		p.ECN = ECT
	}
}

// queue is a FIFO of packets. The zero value is empty.
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

// follow appends p to the packets on a link and tells the one before it when p arrives. It returns false if p is alone.
func (q *queue) follow(p *Packet) bool {
	behind := q.head != nil
	if behind {
		q.tail.then = p.at
	}
	q.push(p)
	return behind
}

// pop removes the first packet; the queue must not be empty.
func (q *queue) pop() *Packet {
	p := q.head
	q.head = p.next
	return p
}

// soon prefetches p.
func (p *Packet) soon() {
	if p != nil {
		prefetch.Line(unsafe.Pointer(p))
	}
}

func (q *queue) len() (n int) {
	q.each(func(*Packet) { n++ })
	return n
}

// each calls do for each packet.
func (q *queue) each(do func(*Packet)) {
	for p := q.head; p != nil; p = p.next {
		do(p)
	}
}

// pool holds unused packets, the most recently freed first.
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

// Reason is the reason for the loss of a packet.
type Reason uint8

// Reasons.
const (
	Overflow   Reason = iota // no buffer for its class
	NoHeadroom               // a lossless class had no headroom left: thresholds are wrong
	LinkLoss                 // a link's losses
	Corrupted                // wrong FCS at the end of a link
	FaultRule                // a Judge
	LinkDown                 // on a failed link
	NoRoute                  // no path leads to its destination
	TooManyHops
	Reasons
)

// String returns the reason in words.
func (r Reason) String() string {
	return [...]string{"buffer overflow", "no headroom", "link loss", "corrupted", "fault rule", "link down", "no route", "too many hops"}[r]
}
