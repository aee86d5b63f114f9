// Package retrans holds the sender's loss recovery: which PSNs are
// outstanding, which of them to send again and when to give up waiting. Each
// scheme is a Recovery; a queue pair is given one by its profile.
package retrans

import (
	"time"

	"roced/bth"
	"roced/mono"
)

// Outcome is what feedback or a timeout means for the sender.
type Outcome struct {
	// Acked is by how many PSNs the lowest unacknowledged one moved.
	Acked uint32
	// Lost is the number of PSNs newly found to need sending again.
	Lost uint32
}

// Recovery decides what is sent again. PSNs between Una and the highest sent
// are outstanding. Arguments go by value so that no call allocates.
type Recovery interface {
	// Reset forgets everything; psn is the first one that will be sent.
	Reset(psn bth.PSN)
	// OnSent records that span PSNs from psn on were sent (a READ request
	// occupies as many as it has response packets); rtx marks a retransmission.
	OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool)
	// OnFeedback processes an ACK, a NAK or an implied acknowledgement.
	OnFeedback(now mono.Time, f bth.Feedback) Outcome
	// OnTimeout is called when Deadline has passed.
	OnTimeout(now mono.Time) Outcome
	// NextRetransmit returns the next PSN to send again, if there is one. The
	// answer stays the same until OnSent or feedback changes it.
	NextRetransmit() (psn bth.PSN, ok bool)
	// Una is the lowest unacknowledged PSN (snd_una).
	Una() bth.PSN
	// InFlight is the number of PSNs believed to be in the network.
	InFlight() uint32
	// SetTimeout sets the retransmission timeout; zero means infinite.
	SetTimeout(d time.Duration)
	// Deadline is when OnTimeout is due, mono.Never when nothing is outstanding.
	Deadline() mono.Time
}
