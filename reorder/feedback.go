package reorder

import "roced.io/roced/bth"

// Feedback is what a receiver tells a sender about the PSNs of one direction:
// the wire's ACKs and NAKs without their encoding. Trackers produce it and
// recoveries consume it.
type Feedback struct {
	// Expected is the PSN the receiver waits for; all before it have arrived.
	Expected bth.PSN
	SACK     bth.PSN // see HasSACK
	// Gap is set when a packet beyond Expected has arrived and Expected is
	// missing: a NAK "PSN sequence error" (IBTA vol.1 9.7.5.2.8).
	Gap bool

	// The rest is said by the acknowledgements of extended transports only, each of
	// which answers one packet.

	// HasSACK is set when that packet, SACK, has arrived ahead of a gap.
	HasSACK bool
	// Refused is set when it could not be tracked and was dropped (MP-RDMA 3.2,
	// Eunomia 3.5.1).
	Refused bool
	// ECE, ReTx and VP are the packet's congestion mark, whether it was a
	// retransmission, and its virtual path, a UDP source port (MP-RDMA 3.1).
	ECE      bool
	ReTx     bool
	NumHoles uint8 // of Holes
	VP       uint16
	// Holes are the most recent gaps, the one closest to the highest PSN first
	// (MELO 3.2.4).
	Holes [bth.MaxHoles]bth.Hole
}
