// Package reorder holds the receiver's view of one direction of a connection:
// which PSNs have arrived and what to say about the missing ones. Each way of
// tracking is a Tracker; a queue pair is given one by its profile.
package reorder

import "roced/bth"

// Verdict says what a tracker makes of an arriving PSN.
type Verdict uint8

// Verdicts.
const (
	InOrder   Verdict = iota // the expected packet: execute it
	Held                     // ahead of a gap and tracked: place it, complete it later
	Duplicate                // has arrived before
	Beyond                   // ahead and not trackable: drop it
)

// LastKind says what completing a packet means for the receiver's message
// bookkeeping once everything before it has arrived.
type LastKind uint8

// Kinds of packets.
const (
	NotLast            LastKind = iota
	Last                        // ends a message: MSN moves
	LastWithCompletion          // also consumes a receive WQE
)

// Tracker follows the PSNs that arrive. The call order is Classify, then
// Receive if the packet was accepted; a packet that is refused (RNR, say) is
// classified only. Arguments go by value so that no call allocates.
type Tracker interface {
	// Reset forgets everything; psn is the next one expected.
	Reset(psn bth.PSN)
	// Classify judges psn without recording it. Receive has the last word: what it
	// finds no room for is Beyond.
	Classify(psn bth.PSN) Verdict
	// Receive records span PSNs from psn on (a READ request occupies as many
	// as it has response packets) and returns by how many PSNs Expected moved.
	Receive(psn bth.PSN, span uint32, last LastKind) (v Verdict, advanced uint32)
	// Expected is the lowest PSN that has not arrived.
	Expected() bth.PSN
	// Feedback describes the state for the next acknowledgement.
	Feedback() bth.Feedback
	// Footprint is the number of bytes of state now held, as papers count it.
	Footprint() int
}
