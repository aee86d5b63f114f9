package reorder

import (
	"math/bits"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
)

// Feedback is a receiver's report on the PSNs of one direction: the content of ACKs and NAKs without their encoding.
// Trackers produce it and recoveries consume it.
type Feedback struct {
	// Expected is the lowest PSN that has not arrived.
	Expected bth.PSN
	SACK     bth.PSN // see HasSACK
	// Gap is set when a packet beyond Expected has arrived and Expected is missing: a NAK "PSN sequence error" (IBTA
	// vol.1 9.7.5.2.8).
	Gap bool

	// Only the acknowledgements of extended transports have the remaining fields. Each of them answers one packet.

	// HasSACK is set when the packet SACK has arrived ahead of a gap.
	HasSACK bool
	// Refused is set when the packet SACK could not be tracked and was dropped (MP-RDMA 3.2, Eunomia 3.5.1).
	Refused bool
	// ECE is the packet's congestion mark, ReTx marks a retransmission, and VP is the packet's virtual path, an entropy
	// value (MP-RDMA 3.1, with UDP source ports only).
	ECE      bool
	ReTx     bool
	NumHoles uint8 // valid entries of Holes
	VP       uint32
	// Holes are the most recent gaps; the gap closest to the highest PSN comes first (MELO 3.2.4).
	Holes [bth.MaxHoles]bth.Hole

	// Only SACKs and NACKs of MRC have the remaining fields.

	// Bitmap has one bit for each of 64 PSNs from Base on, the least significant bit first. A set bit means that the packet
	// has arrived.
	Bitmap    uint64
	Base      bth.PSN
	Timestamp uint16 // of the packet, in bth.MRCTimestampUnit
	MPR       uint8  // PSNs that the receiver tracks beyond Expected, in bth.MRCRangeUnit; 0: unknown
	Remove    bool   // the sender must stop using VP
	// ProbeReply is set in the answer to the probe with the number ProbeID.
	ProbeReply bool
	ProbeID    uint16
	Receiver   ccalgo.Receiver
}

// Last returns the highest PSN in Bitmap, which must not be zero.
func (f *Feedback) Last() bth.PSN { return f.Base.Add(bits.Len64(f.Bitmap) - 1) }
