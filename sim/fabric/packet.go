// Package fabric is a simulated network: links, and switches with a shared buffer, priority
// flow control, ECN, classes of traffic and a choice of how they balance load. It moves
// descriptors of packets; what is in these only their endpoints know.
//
// A network belongs to one engine and so to one goroutine. It reads no clock, takes its random
// numbers from generators of its own with seeds of its own, and allocates nothing per packet.
package fabric

// Kind says what a descriptor stands for.
type Kind uint8

// Kinds of packets.
const (
	Data  Kind = iota // of an endpoint
	Pause             // priority flow control (IEEE 802.1Qbb): stop, or go on if Ref is zero
)

// ECN codepoints (RFC 3168), as they stand in the IP header.
const (
	NotECT uint8 = 0
	ECT    uint8 = 2
	CE     uint8 = 3
)

// Classes is the number of priorities.
const Classes = 8

// Packet describes a packet on its way, in 32 bytes.
type Packet struct {
	Ref   uint32 // what its endpoints know it by; of a Pause, how many nanoseconds it holds
	Bytes uint32 // that it takes on a link
	Dst   uint32 // host
	Hash  uint32 // of the flow
	QP    uint32 // of the destination
	Rank  uint32 // what is left of its message, for SRPT: low ranks go first
	in    uint16 // port of the switch that it lies in
	Class uint8
	Kind  Kind
	ECN   uint8
	Hops  uint8 // switches that it has passed
}

// Reason says why a packet was lost.
type Reason uint8

// Reasons.
const (
	Overflow   Reason = iota // no buffer for its class
	NoHeadroom               // a lossless class had no headroom left: thresholds are wrong
	LinkLoss                 // a link's losses
	FaultRule                // what decides about a link's packets
	LinkDown                 // it was on a link that failed, or is behind it
	NoRoute                  // nowhere leads to its destination
	TooManyHops
	Reasons
)

// String returns the reason in words.
func (r Reason) String() string {
	return [...]string{"buffer overflow", "no headroom", "link loss", "fault rule", "link down", "no route", "too many hops"}[r]
}
