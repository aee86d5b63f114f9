// Package retrans implements the loss recovery of a sender: which PSNs are outstanding, which of them to retransmit,
// and when to time out. Each scheme is a Recovery. A queue pair gets one from its profile, and a second one for READ
// responses if its transport acknowledges them.
//
// Recoveries count distances between outstanding PSNs from una, so that the distances cover the whole PSN space: a
// READ of 2 GiB at the smallest MTU spans 2^23 PSNs. A PSN before una or beyond the highest PSN sent is stale, of an
// earlier exchange, and is ignored (IBTA vol.1 9.7.5.1.2).
//
// No promise: this package may change between releases.
package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// Outcome is the result of feedback or of a timeout for the sender, in PSNs.
type Outcome struct {
	// Acked is the number of PSNs by which una, the lowest unacknowledged PSN, moved.
	Acked uint32
	// Delivered is the number of PSNs newly known to have arrived, by cumulative or selective acknowledgement. Each
	// PSN counts once, as long as the recovery remembers it.
	Delivered uint32
	// Lost is the number of PSNs that newly need retransmission.
	Lost uint32
}

// Recovery selects the packets to retransmit. PSNs from Una up to the highest PSN sent are outstanding.
//
// The queue pair owns its recovery and calls it from one goroutine. Reset comes first. SetTimeout may come at any time.
// Then OnSent follows for each packet in the order of sending, OnFeedback for each acknowledgement in the order of
// arrival, and OnTimeout when Deadline has passed. Time never goes back from one call to the next. Each of these calls
// may change the results of NextRetransmit, Una, InFlight and Deadline. No call allocates memory.
type Recovery interface {
	// Reset forgets all packets, but not the timeout, and returns shared memory. psn is the first PSN that will be sent.
	Reset(psn bth.PSN)
	// OnSent records that the span PSNs from psn on were sent; rtx marks a retransmission. span is 1, except for a
	// READ request of standard RC, which occupies as many PSNs as it has response packets.
	OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool)
	// OnFeedback processes an ACK, a NAK or an implied acknowledgement. The caller owns *f; the recovery neither
	// changes nor keeps it.
	OnFeedback(now mono.Time, f *reorder.Feedback) Outcome
	// OnRNR follows an OnFeedback with the PSN of an RNR NAK: the receiver had no receive for the packet at Una. That
	// packet, and those behind it that are not known to have arrived, are to be retransmitted after the RNR wait. This
	// is neither a loss nor a timeout.
	OnRNR(now mono.Time)
	// OnTimeout must be called when Deadline has passed.
	OnTimeout(now mono.Time) Outcome
	// NextRetransmit returns the next PSN to retransmit, or ok == false if there is none. The result stays the same
	// until OnSent, OnFeedback, OnRNR or OnTimeout changes it.
	NextRetransmit() (psn bth.PSN, ok bool)
	// Una returns the lowest unacknowledged PSN (snd_una).
	Una() bth.PSN
	// InFlight returns the number of PSNs believed to be in the network.
	InFlight() uint32
	// SetTimeout sets the retransmission timeout of the queue pair; zero means infinite. Schemes with a timeout of
	// their own may ignore it.
	SetTimeout(d time.Duration)
	// Deadline returns when OnTimeout is due, or mono.Never if no timer runs.
	Deadline() mono.Time
}

// Capped is a Recovery that limits outstanding packets: the sender may send a new packet only while
// next PSN - Una < Cap. IRN calls it BDP-FC (3.2).
type Capped interface {
	// Cap returns the limit in packets. It may change with each call of the Recovery.
	Cap() uint32
}

// maxWindow as a cap means no limit: half of the PSN space.
const maxWindow = 1 << 23

// Early is a Recovery that retransmits unacknowledged packets "as new data if there is no new data to transmit and
// awnd allows" (MP-RDMA 3.5, after FUSO).
type Early interface {
	// NextEarly returns the next such packet, or ok == false if there is none.
	NextEarly() (psn bth.PSN, ok bool)
}

// Marker is a Recovery that can mark single packets as received.
type Marker interface {
	// Mark marks psn and returns whether it was outstanding and not marked yet.
	Mark(psn bth.PSN) bool
}
