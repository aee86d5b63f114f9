package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// IRN is the receiver of Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM
// 2018, section 5.3: packets out of order go to their places in memory at once, and a
// 2-bitmap of the size of the BDP cap follows them. Its bits tell for each packet
// whether it has arrived, and whether it is the last one of a message, which moves the
// MSN and may expire a receive WQE. Each packet out
// of order is answered by a NACK with the expected PSN and its own (3.1).
//
// What a last packet causes is known to the queue pair, which keeps premature CQEs and
// early READ and atomic requests, those in the Read WQE buffer, until Expected has
// passed their PSN; Released counts what the MSN moves by.
//
// Responses to READs end no messages. The tracker of these needs the first bit only, as
// the paper has it: five bitmaps per queue pair, two of requests that arrive, one of
// responses that arrive, and one of either kind at its sender.
type IRN struct {
	expected bth.PSN
	length   uint32 // BDP cap
	head     uint32 // slot of expected, 0 to length-1
	// The two bits of a slot: its packet has arrived; it ends a message. That of
	// expected itself is empty.
	arrived, ends []uint64
	discards      bool // packets out of order: they are NACKed only
	requests      bool // the second bit has been in use
	released      released

	outOfOrder bool    // the packet received last is answered by a NACK
	psn        bth.PSN // ... this one
	refused    bool    // ... and it was dropped
}

// NewIRN returns a tracker that follows packets, the BDP cap. With discards, packets out
// of order are dropped, for senders that go back N (4.3).
func NewIRN(packets int, discards bool) *IRN {
	words := (packets + 63) / 64
	return &IRN{length: uint32(packets), arrived: make([]uint64, words), ends: make([]uint64, words), discards: discards}
}

// newIRN has a BDP cap of 110 packets: 40 Gb/s, 24 us and a path MTU of 1 KB (4.1).
func newIRN(p Params) (Tracker, error) {
	r := param.NewReader("reorder: irn", p)
	packets := r.Int("bdp_packets", 110, 1, 1<<16)
	discards := r.Bool("discard_out_of_order", false)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return NewIRN(packets, discards), nil
}

// Reset implements Tracker.
func (t *IRN) Reset(psn bth.PSN) {
	clear(t.arrived)
	clear(t.ends)
	*t = IRN{expected: psn, length: t.length, arrived: t.arrived, ends: t.ends, discards: t.discards}
}

// Classify implements Tracker. A sender that keeps to the BDP cap never sends a packet
// that is Beyond, unless those out of order are discarded.
func (t *IRN) Classify(psn bth.PSN) Verdict {
	switch d := psn.Diff(t.expected); {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	case uint32(d) >= t.length || t.discards:
		return Beyond
	case t.has(t.arrived, uint32(d)):
		return Duplicate
	}
	return Held
}

// Receive implements Tracker.
func (t *IRN) Receive(psn bth.PSN, ends bool) (v Verdict, advanced uint32) {
	v = t.Classify(psn)
	switch v {
	case InOrder:
		advanced = t.advance(ends)
	case Held:
		d := uint32(psn.Diff(t.expected))
		t.set(t.arrived, d, true)
		t.set(t.ends, d, ends)
		t.requests = t.requests || ends
	}
	t.outOfOrder, t.psn, t.refused = v != InOrder && psn.After(t.expected), psn, v == Beyond
	return v, advanced
}

// Refuse implements Releaser.
func (t *IRN) Refuse(psn bth.PSN) { t.outOfOrder, t.psn, t.refused = true, psn, true }

// advance moves the head past the expected packet and past those that have been waiting
// for it.
func (t *IRN) advance(ends bool) (advanced uint32) {
	for {
		t.released.add(ends)
		t.expected, t.head = t.expected.Next(), (t.head+1)%t.length
		advanced++
		if !t.has(t.arrived, 0) {
			return advanced
		}
		ends = t.has(t.ends, 0)
		t.set(t.arrived, 0, false)
		t.set(t.ends, 0, false)
	}
}

// has returns a bit of the slot of expected + d.
func (t *IRN) has(bits []uint64, d uint32) bool {
	i := (t.head + d) % t.length
	return bits[i/64]>>(i%64)&1 != 0
}

func (t *IRN) set(bits []uint64, d uint32, to bool) {
	i := (t.head + d) % t.length
	bits[i/64] &^= 1 << (i % 64)
	if to {
		bits[i/64] |= 1 << (i % 64)
	}
}

// Expected implements Tracker.
func (t *IRN) Expected() bth.PSN { return t.expected }

// Feedback implements Tracker: a NACK if the packet received last is out of order. One
// that was there already, beyond the gap, is selectively acknowledged again.
func (t *IRN) Feedback(f *Feedback) {
	f.Expected = t.expected
	if t.outOfOrder {
		f.Gap, f.HasSACK, f.SACK, f.Refused = true, true, t.psn, t.refused
	}
}

// Released implements Releaser.
func (t *IRN) Released() uint32 { return t.released.take() }

// Footprint implements Tracker: two bits for each packet of the BDP cap, or one for
// READ responses, and the index of the head.
func (t *IRN) Footprint() int {
	bitmaps := uint32(1)
	if t.requests {
		bitmaps = 2
	}
	return int(bitmaps*t.length+7)/8 + 1
}
