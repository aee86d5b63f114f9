package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// MPRDMA is the receiver of Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018, section 3.3: a
// cyclic bitmap of two bits for each of the L packets after rcv_nxt. The receiver drops a packet with a PSN larger
// than rcv_nxt + L, and an early packet of a synchronise operation (3.4).
//
// The second bit distinguishes tail packets and tail packets with a completion; the queue pair keeps the completions,
// so only Footprint counts that bit. The paper moves the head when the message at the head of the line is complete.
// Here it moves with every packet in order; otherwise no message could be longer than L packets. rcv_nxt itself has
// not arrived, so rcv_nxt + L uses its slot.
type MPRDMA struct {
	window
	any bool // a packet has been committed
}

// NewMPRDMA returns a tracker with a bitmap of length packets.
func NewMPRDMA(length int) *MPRDMA {
	return &MPRDMA{window: makeWindow(length, length+1)}
}

// newMPRDMA has L = 64 (section 5).
func newMPRDMA(r *param.Reader) Tracker { return NewMPRDMA(r.Int("bitmap_slots", 64, 1, 1<<16)) }

// Reset implements Tracker.
func (m *MPRDMA) Reset(psn bth.PSN) {
	m.window.Reset(psn)
	m.any = false
}

// Early reports whether packets before first, the first packet of an operation, are missing. A synchronise operation
// must not touch memory then, and its packets are committed as Refused (3.4).
func (m *MPRDMA) Early(first bth.PSN) bool { return first.After(m.expected) }

// Commit implements Tracker.
func (m *MPRDMA) Commit(psn bth.PSN, v Verdict) {
	m.window.Commit(psn, v)
	m.any = true
}

// Feedback implements Tracker. It acknowledges every packet with its own PSN, also in order (3.1), because the sender
// judges paths by it. A packet beyond the bitmap implies the loss of the expected packet (3.5). An early synchronise
// operation implies no loss; the acknowledgement names the operation's packet (3.4).
func (m *MPRDMA) Feedback(f *Feedback) {
	f.Expected, f.HasSACK, f.SACK = m.expected, m.any, m.latest.psn
	f.Refused, f.Gap = m.latest.refused(), m.latest.verdict == Beyond
}

// Footprint implements Tracker: the bitmap and the index of its head, 17 bytes for L = 64 (Eunomia, table 2).
func (m *MPRDMA) Footprint() int { return m.Bitmap() + 1 }

// Bitmap implements Bitmapped.
func (m *MPRDMA) Bitmap() int { return int(m.length*2+7) / 8 }
