package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Late describes delays of the owner's own loop, which are no losses: an acknowledgement waits to be received, or a packet has
// left later than its timer says. Timers of losses wait meanwhile, at most maxLate. The zero value has no delay.
type Late struct {
	Received mono.Time // all packets that arrived before have been received; 0: there is no such time
	Until    mono.Time // packets that have left late may have no acknowledgement before
	// Peer means that the peer is a queue pair of the same owner with packets to send. Nothing is lost between the two.
	Peer bool
}

// maxLate limits the wait of a timer for a loop that never catches up.
const maxLate = 100 * time.Millisecond

// lossDue reports whether the timer of a loss with this deadline fires.
func (q *QP) lossDue(now, deadline mono.Time) bool {
	l := &q.scratch.Late
	switch {
	case now < deadline || l.Peer:
		return false
	case now.Sub(deadline) >= maxLate:
		return true
	}
	return now >= l.Until && (l.Received == 0 || deadline <= l.Received)
}

// DestQPN returns the number of the peer's queue pair.
func (q *QP) DestQPN() bth.QPN { return bth.QPN(q.attr.DestQPN) }
