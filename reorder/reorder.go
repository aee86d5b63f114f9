// Package reorder tracks the PSNs of one direction of a connection that have arrived, and produces the reports to the
// sender about missing ones. Each tracking scheme is a Tracker. A queue pair gets one from its profile,
// and a second one for READ responses if its transport acknowledges them.
//
// No promise: this package may change between releases.
package reorder

import "roced.io/roced/bth"

// Verdict is a tracker's classification of an arriving PSN.
type Verdict uint8

// Verdicts. Classify returns all but Refused.
const (
	InOrder   Verdict = iota // the expected packet: execute it
	Held                     // ahead of a gap and trackable: place it, complete it later
	Duplicate                // has arrived before
	Beyond                   // ahead of a gap and not trackable: drop it
	Refused                  // trackable, but dropped because the queue pair cannot execute it yet
)

// Tracker records the PSNs that arrive. The calls for each packet, in this order, are:
//
//	Announce   // only if the tracker is an Agent
//	Classify
//	Commit     // omitted for a packet that is dropped without an answer, such as after an RNR NAK
//	Feedback   // omitted if no acknowledgement follows
//
// The queue pair owns its tracker and calls it from one goroutine. Memory that trackers of one NIC share
// (bitpool.Pool, Memory) belongs to the goroutine of the NIC. No call allocates memory.
type Tracker interface {
	// Reset forgets all packets and returns shared memory; psn is the next expected PSN.
	Reset(psn bth.PSN)
	// Classify judges the packet psn without recording it.
	Classify(psn bth.PSN) Verdict
	// Commit records the packet psn. v is the verdict of Classify, to which the last call of this tracker was made
	// for the same psn, or Refused in place of Held. Commit advances Expected past all packets that have arrived.
	Commit(psn bth.PSN, v Verdict)
	// Expected returns the lowest PSN that has not arrived.
	Expected() bth.PSN
	// Feedback fills *f, which the caller owns and has zeroed, with the acknowledgement of the packet that was
	// committed last. The queue pair adds ECE, ReTx and VP.
	Feedback(f *Feedback)
	// Footprint returns the number of bytes of state that the tracker holds now, counted as its paper counts them.
	Footprint() int
}

// Bitmapped is a Tracker with one or two bits for each packet ahead of a gap.
type Bitmapped interface {
	Tracker
	// Bitmap returns the number of bytes of Footprint that these bits take, without their index.
	Bitmap() int
}

// Buffered is a Tracker that needs a re-ordering buffer: the queue pair must copy Held packets and place them in
// PSN order.
type Buffered interface {
	Tracker
	// Buffered is never called; it marks the type.
	Buffered()
}

// Agent is a Tracker that reads what the sender's agent adds to each packet (Eunomia 3.2.1).
type Agent interface {
	// Announce precedes Classify. head is the first sequence number of the connection and tail marks the last
	// packet that the sender has sent so far. Announce returns false if the packet is a stale one, of an earlier
	// connection; the caller must drop it.
	Announce(head bth.PSN, tail bool) bool
}

// latest is the packet that was committed last.
type latest struct {
	psn     bth.PSN
	verdict Verdict
}

// refused reports whether the packet was dropped.
func (l *latest) refused() bool { return l.verdict >= Beyond }

// sack adds a selective acknowledgement of the packet to f if it is ahead of a gap, and returns whether it is.
func (l *latest) sack(f *Feedback) bool {
	if l.verdict == InOrder || l.psn.Before(f.Expected) {
		return false
	}
	f.HasSACK, f.SACK, f.Refused = true, l.psn, l.refused()
	return true
}
