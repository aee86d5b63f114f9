package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// slot is what MP-RDMA's bitmap knows of a packet, in two bits (MP-RDMA 3.3). The paper's
// fourth state, a tail packet that requires a completion, is not needed: the queue pair
// keeps the completion itself.
type slot uint8

// States of a slot.
const (
	slotEmpty    slot = iota // not received
	slotReceived             // received, does not end a message
	slotTail                 // the tail packet of a message
)

// slotOf returns the state of a slot whose packet has arrived.
func slotOf(ends bool) slot {
	if ends {
		return slotTail
	}
	return slotReceived
}

// MPRDMA is the receiver of Lu et al., "Multi-Path Transport for RDMA in
// Datacenters", NSDI 2018, section 3.3: a cyclic bitmap with two bits for each of
// the L packets after rcv_nxt. A packet with a PSN larger than rcv_nxt + L is
// refused, and so is one of a synchronise operation that comes early (3.4).
//
// The paper moves the head when the message at the head of the line is complete;
// here it moves with every packet in order, without which no message could be
// longer than L packets. As rcv_nxt itself has not arrived, its slot is that of
// rcv_nxt + L.
type MPRDMA struct {
	expected bth.PSN // rcv_nxt
	length   uint32  // L
	head     uint32  // slot of rcv_nxt, 0 to L-1
	bitmap   []uint8 // four slots in a byte
	released released

	heard    bool    // a packet has arrived that acknowledgements tell of
	psn      bth.PSN // ... this one
	refused  bool    // ... and it was dropped
	overflow bool    // ... because the bitmap is too short
}

// NewMPRDMA returns a tracker with a bitmap of length packets.
func NewMPRDMA(length int) *MPRDMA {
	return &MPRDMA{length: uint32(length), bitmap: make([]uint8, (length+3)/4)}
}

// newMPRDMA takes L = 64 (section 5).
func newMPRDMA(p Params) (Tracker, error) {
	r := param.NewReader("reorder: mp-rdma", p)
	length := r.Int("bitmap_slots", 64, 1, 1<<16)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return NewMPRDMA(length), nil
}

// Reset implements Tracker.
func (m *MPRDMA) Reset(psn bth.PSN) {
	clear(m.bitmap)
	*m = MPRDMA{expected: psn, length: m.length, bitmap: m.bitmap}
}

// Classify implements Tracker.
func (m *MPRDMA) Classify(psn bth.PSN) Verdict {
	switch d := psn.Diff(m.expected); {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	case uint32(d) > m.length:
		return Beyond
	case m.get(uint32(d)) != slotEmpty:
		return Duplicate
	}
	return Held
}

// Early reports whether an operation whose first packet is first must not touch
// memory yet if it is a synchronise operation: something before it is missing (3.4).
// Its packets are refused then.
func (m *MPRDMA) Early(first bth.PSN) bool { return first.After(m.expected) }

// Refuse implements Releaser.
func (m *MPRDMA) Refuse(psn bth.PSN) { m.note(psn, true, false) }

// Receive implements Tracker.
func (m *MPRDMA) Receive(psn bth.PSN, ends bool) (v Verdict, advanced uint32) {
	v = m.Classify(psn)
	switch v {
	case InOrder:
		advanced = m.advance(ends)
	case Held:
		m.set(uint32(psn.Diff(m.expected)), slotOf(ends))
	}
	m.note(psn, v == Beyond, v == Beyond)
	return v, advanced
}

// advance moves the head past the expected packet and past those that have been waiting
// for it.
func (m *MPRDMA) advance(ends bool) (advanced uint32) {
	for {
		m.released.add(ends)
		m.expected, m.head = m.expected.Next(), (m.head+1)%m.length
		advanced++
		s := m.get(0)
		if s == slotEmpty {
			return advanced
		}
		ends = s == slotTail
		m.set(0, slotEmpty)
	}
}

// get returns the slot of rcv_nxt + d.
func (m *MPRDMA) get(d uint32) slot {
	i := (m.head + d) % m.length
	return slot(m.bitmap[i/4] >> (i % 4 * 2) & 3)
}

func (m *MPRDMA) set(d uint32, s slot) {
	i := (m.head + d) % m.length
	shift := i % 4 * 2
	m.bitmap[i/4] = m.bitmap[i/4]&^(3<<shift) | uint8(s)<<shift
}

func (m *MPRDMA) note(psn bth.PSN, refused, overflow bool) {
	m.heard, m.psn, m.refused, m.overflow = true, psn, refused, overflow
}

// Expected implements Tracker.
func (m *MPRDMA) Expected() bth.PSN { return m.expected }

// Feedback implements Tracker. Every packet is acknowledged by its own PSN, also if
// it came in order (3.1): the sender judges paths by it. Overflow tells of a loss, the
// expected packet's (3.5); an early synchronise operation does not, and names itself (3.4).
func (m *MPRDMA) Feedback(f *Feedback) {
	f.Expected, f.HasSACK, f.SACK, f.Refused, f.Gap = m.expected, m.heard, m.psn, m.refused, m.overflow
}

// Released implements Releaser.
func (m *MPRDMA) Released() uint32 { return m.released.take() }

// Footprint implements Tracker: the bitmap and the index of its head, 17 bytes for
// L = 64 (Eunomia, table 2, counts them so).
func (m *MPRDMA) Footprint() int { return m.Bitmap() + 1 }

// Bitmap implements Bitmapped.
func (m *MPRDMA) Bitmap() int { return int(m.length*2+7) / 8 }
