package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/psnring"
)

// window has one bit for each PSN that may arrive ahead of the expected one. IRN and MP-RDMA have two bits in their
// papers; the second one marks the last packets of messages, which the queue pair remembers with the completions.
type window struct {
	expected bth.PSN
	length   uint32 // packets of the paper's bitmap
	reach    uint32 // PSNs at this distance from expected are not tracked
	arrived  psnring.Bits
	latest   latest
}

func makeWindow(length, reach int) window {
	return window{length: uint32(length), reach: uint32(reach), arrived: psnring.Make(length)}
}

// Reset implements Tracker.
func (w *window) Reset(psn bth.PSN) {
	clear(w.arrived)
	w.expected, w.latest = psn, latest{}
}

// Classify implements Tracker.
func (w *window) Classify(psn bth.PSN) Verdict {
	switch d := psn.Diff(w.expected); {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	case uint32(d) >= w.reach:
		return Beyond
	case w.arrived.Has(psn):
		return Duplicate
	}
	return Held
}

// Commit implements Tracker.
func (w *window) Commit(psn bth.PSN, v Verdict) {
	switch v {
	case InOrder:
		for w.expected = psn.Next(); w.arrived.Has(w.expected); w.expected = w.expected.Next() {
			w.arrived.Clear(w.expected)
		}
	case Held:
		w.arrived.Set(psn)
	}
	w.latest = latest{psn, v}
}

// Expected implements Tracker.
func (w *window) Expected() bth.PSN { return w.expected }
