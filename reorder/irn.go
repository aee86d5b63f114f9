package reorder

import "roced.io/roced/plugin/param"

// IRN is the receiver of Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018, section 5.3. It places
// out-of-order packets at once and tracks them in a 2-bitmap of the size of the BDP cap. The first bit of a packet
// records its arrival. The second bit marks the last packet of a message, which advances the MSN and may expire a
// receive WQE. The receiver answers each out-of-order packet with a NACK that carries the expected PSN and the
// packet's own PSN (3.1).
//
// The queue pair knows the last packets: it keeps premature CQEs and early READ and atomic requests (the Read WQE
// buffer) until Expected has passed their PSN. The second bit is therefore counted in Footprint only. Responses to
// READs end no messages and need the first bit only. In the paper a queue pair has five bitmaps: two for requests
// that arrive, one for responses that arrive, and one of each kind at the sender.
type IRN struct {
	window
	responses bool // see TrackResponses
}

// NewIRN returns a tracker with a BDP cap in packets. If discards is set, the tracker drops out-of-order packets,
// for senders that go back N (4.3).
func NewIRN(packets int, discards bool) *IRN {
	reach := packets
	if discards {
		reach = 1
	}
	return &IRN{window: makeWindow(packets, reach)}
}

// newIRN has a BDP cap of 110 packets: 40 Gb/s, 24 us and a path MTU of 1 KB (4.1).
func newIRN(r *param.Reader) Tracker {
	return NewIRN(r.Int("bdp_packets", 110, 1, 1<<16), r.Bool("discard_out_of_order", false))
}

// TrackResponses makes Footprint count one bit per packet, for READ responses.
func (t *IRN) TrackResponses() { t.responses = true }

// Feedback implements Tracker: a NACK if the latest packet is out of order, also if it is a duplicate ahead of the
// gap.
func (t *IRN) Feedback(f *Feedback) {
	f.Expected = t.expected
	if t.latest.sack(f) {
		f.Gap = true
	}
}

// Footprint implements Tracker: two bits for each packet of the BDP cap, or one for READ responses, and the index
// of the head.
func (t *IRN) Footprint() int {
	bitmaps := uint32(2)
	if t.responses {
		bitmaps = 1
	}
	return int(bitmaps*t.length+7)/8 + 1
}
