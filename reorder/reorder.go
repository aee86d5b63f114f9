// Package reorder holds the receiver's view of one direction of a connection:
// which PSNs have arrived and what to say about the missing ones. Each way of
// tracking is a Tracker; a queue pair is given one by its profile, and one more for
// READ responses if its transport acknowledges them.
//
// A tracker belongs to its queue pair, which calls it from one goroutine. Memory that
// trackers of one NIC share (bitpool.Pool, Memory) belongs to the goroutine of the NIC.
package reorder

import "roced.io/roced/bth"

// Verdict says what a tracker makes of an arriving PSN.
type Verdict uint8

// Verdicts.
const (
	InOrder   Verdict = iota // the expected packet: execute it
	Held                     // beyond a gap and tracked: place it, complete it later
	Duplicate                // has arrived before
	Beyond                   // beyond a gap and not trackable: drop it
)

// Tracker follows the PSNs that arrive. For each packet the order of calls is
//
//	Announce            // Agent only
//	Classify
//	Receive or Refuse   // Refuse: Releaser only
//	Released            // Releaser only
//	Feedback
//
// where a packet that is dropped without an answer (RNR, say) is classified only.
// Arguments go by value so that no call allocates.
type Tracker interface {
	// Reset forgets everything and gives shared memory back; psn is the next one
	// expected.
	Reset(psn bth.PSN)
	// Classify judges psn without recording it. Receive has the last word: what it
	// finds no room for is Beyond.
	Classify(psn bth.PSN) Verdict
	// Receive records psn and returns by how many PSNs Expected moved. ends says that
	// the packet is the last one of a message that counts for the MSN (IBTA vol.1
	// 9.7.7.1).
	Receive(psn bth.PSN, ends bool) (v Verdict, advanced uint32)
	// Expected is the lowest PSN that has not arrived.
	Expected() bth.PSN
	// Feedback sets f, which is zero, to what the acknowledgement of the packet says that
	// Receive or Refuse was called for last. Mark, retransmission and path are the queue
	// pair's to add.
	Feedback(f *Feedback)
	// Footprint is the number of bytes of state now held, as papers count it.
	Footprint() int
}

// Bitmapped is a Tracker that keeps a bit or two for each packet beyond a gap.
type Bitmapped interface {
	Tracker
	// Bitmap is how many bytes of Footprint are these bits, without what finds them.
	Bitmap() int
}

// Releaser is a Tracker that accepts packets beyond a gap. What these complete is kept
// until the gap has been filled, and messages complete in order: the queue pair keeps
// the completions and lets those go whose packets Expected has passed.
type Releaser interface {
	Tracker
	// Released returns how many messages have become complete, because everything
	// before their last packets has arrived, since it was called last. The MSN moves by
	// as many. The queue pair counts by what it keeps, this is for those that keep nothing.
	Released() uint32
	// Refuse records that psn was dropped although it could have been tracked,
	// because it came too early for what it does: Feedback says so.
	Refuse(psn bth.PSN)
}

// released counts messages, for Releaser.
type released uint32

// add counts a packet that ends a message.
func (r *released) add(ends bool) {
	if ends {
		*r++
	}
}

// take returns what has been counted and begins anew.
func (r *released) take() uint32 {
	n := *r
	*r = 0
	return uint32(n)
}
