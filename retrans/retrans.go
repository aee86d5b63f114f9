// Package retrans holds the sender's loss recovery: which PSNs are
// outstanding, which of them to send again and when to give up waiting. Each
// scheme is a Recovery; a queue pair is given one by its profile, and one more for READ
// responses if its transport acknowledges them.
//
// Distances between PSNs that are outstanding are counted from una, so that they cover
// the whole number space (a READ of 2 GiB at the smallest MTU spans 2^23 PSNs). What lies
// before una or is beyond the highest PSN sent is stale, of an earlier exchange, and is
// ignored (IBTA vol.1 9.7.5.1.2).
package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// MaxLate is how many packets may be acknowledged while an acknowledgement is on its way by
// a longer path. What is later is stale.
const MaxLate = 1 << 16

// overtaken reports whether f answers one packet but says less of all others than is known:
// later acknowledgements have come by shorter paths.
func overtaken(una bth.PSN, f *reorder.Feedback) bool {
	behind := distance(f.Expected, una)
	return f.HasSACK && behind > 0 && behind <= MaxLate
}

// Outcome is what feedback or a timeout means for the sender, in PSNs.
type Outcome struct {
	// Acked is by how many the lowest unacknowledged one moved.
	Acked uint32
	// Delivered are those newly known to have arrived, by cumulative or selective
	// acknowledgement; each counts once as long as the recovery remembers it.
	Delivered uint32
	// Lost are those newly found to need sending again.
	Lost uint32
}

// Recovery decides what is sent again. PSNs between Una and the highest sent
// are outstanding. Arguments go by value so that no call allocates.
//
// It belongs to one queue pair, which calls it from one goroutine: Reset first, SetTimeout
// at any time, then OnSent for each packet in the order of sending, OnFeedback for each
// acknowledgement in the order of arrival, and OnTimeout. Time never goes back from one
// call to the next. NextRetransmit, Una, InFlight and Deadline are asked anew after each
// of these.
type Recovery interface {
	// Reset forgets everything, but for the timeout, and gives shared memory back; psn
	// is the first one that will be sent.
	Reset(psn bth.PSN)
	// OnSent records that span PSNs from psn on were sent; rtx marks a retransmission.
	// span is 1 but for a READ request of standard RC, which occupies as many as it has
	// response packets.
	OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool)
	// OnFeedback processes an ACK, a NAK or an implied acknowledgement, which stays the
	// caller's: it is neither changed nor kept.
	OnFeedback(now mono.Time, f *reorder.Feedback) Outcome
	// OnRNR is called when the receiver had no receive for the packet at Una, and
	// OnFeedback has acknowledged those before it: that one and those behind it which
	// are not known to have arrived are to be sent again, once the wait is over. That is
	// neither a loss nor a timeout.
	OnRNR(now mono.Time)
	// OnTimeout is called when Deadline has passed.
	OnTimeout(now mono.Time) Outcome
	// NextRetransmit returns the next PSN to send again, if there is one. The
	// answer stays the same until OnSent or feedback changes it.
	NextRetransmit() (psn bth.PSN, ok bool)
	// Una is the lowest unacknowledged PSN (snd_una).
	Una() bth.PSN
	// InFlight is the number of PSNs believed to be in the network.
	InFlight() uint32
	// SetTimeout sets the retransmission timeout of the queue pair; zero means infinite.
	// Transports that have a timeout of their own may ignore it.
	SetTimeout(d time.Duration)
	// Deadline is when OnTimeout is due, mono.Never when nothing is outstanding.
	Deadline() mono.Time
}
