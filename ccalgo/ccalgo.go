// Package ccalgo holds congestion control. Each algorithm is a Controller: it
// is told what was sent, acknowledged, marked and lost, and answers with a
// window, a rate, or both. A queue pair is given one by its profile.
package ccalgo

import (
	"time"

	"roced/mono"
)

// Unlimited is the window or rate of a controller that does not limit it.
const Unlimited = ^uint64(0)

// Sample is one acknowledgement as seen by the sender.
type Sample struct {
	Bytes    uint32        // newly acknowledged
	InFlight uint32        // bytes still outstanding
	RTT      time.Duration // zero when not measured
	ECN      bool          // congestion was experienced on the way
	Path     uint16        // virtual path, that is UDP source port
}

// Controller limits a sender. Arguments go by value so that no call allocates.
// It belongs to one queue pair and has the same state after the same calls.
type Controller interface {
	// Reset begins anew, for a path MTU in bytes. It comes before all else.
	Reset(mtu int)
	// ECNCapable says that the algorithm learns from ECN: what is sent is to be
	// marked as ECN-capable, without which switches drop instead of marking (RFC
	// 3168 section 5).
	ECNCapable() bool
	OnSent(now mono.Time, bytes, inflight uint32)
	OnAck(now mono.Time, s Sample)
	OnCNP(now mono.Time)
	OnLoss(now mono.Time, lost uint32, timeout bool)
	// OnTimeout is called when Deadline has passed.
	OnTimeout(now mono.Time)
	// Deadline is the next instant at which the algorithm wants to be called.
	Deadline() mono.Time
	// Limits returns the congestion window in bytes and the rate in bits per
	// second, each possibly Unlimited.
	Limits() (windowBytes, rateBps uint64)
}

// Shrinker is a Controller whose window shrinks for other reasons than congestion:
// MP-RDMA's, for a path that is too slow (MP-RDMA 3.3) and for an acknowledgement
// that found nothing to send (3.5).
type Shrinker interface {
	// Shrink takes packets off the window.
	Shrink(packets int)
}
