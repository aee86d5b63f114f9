// Package ccalgo holds congestion control. Each algorithm is a Controller: it
// is told what was sent, acknowledged, marked and lost, and answers with a
// window, a rate, or both. A queue pair is given one by its profile, and one more for
// READ responses if these have a window of their own (MP-RDMA).
package ccalgo

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Unlimited is the window or rate of a controller that does not limit it.
const Unlimited = ^uint64(0)

// Sample is one acknowledgement as seen by the sender.
type Sample struct {
	// Bytes are the payload of the packets that are newly known to have arrived, by a
	// cumulative or a selective acknowledgement, each counted once. It is zero for one
	// that says nothing new, and for a NACK of a packet that was dropped.
	Bytes uint32
	// InFlight are the bytes of payload believed to be in the network after it.
	InFlight uint32
	RTT      time.Duration // zero when not measured
	ECN      bool          // congestion was experienced on the way
}

// Controller limits a sender. Arguments go by value so that no call allocates.
// It belongs to one queue pair, which calls it from one goroutine, and has the same
// state after the same calls. Time never goes back from one call to the next, but may
// stand still or jump by days.
//
// Reset comes first. Then the order is that of events: OnSent after a packet has been
// built, OnAck after retrans.Recovery.OnFeedback has taken the same acknowledgement,
// then OnLoss if that has found a loss. Limits and Deadline may be asked at any time, and
// are asked anew after each of these calls.
type Controller interface {
	// Reset begins anew, for a path MTU in bytes. It comes before all else.
	Reset(mtu int)
	// ECNCapable says that the algorithm learns from ECN: what is sent is to be
	// marked as ECN-capable, without which switches drop instead of marking (RFC
	// 3168 section 5).
	ECNCapable() bool
	// OnSent tells of a data packet with so many bytes of payload, new or sent again;
	// inflight are the bytes in the network, it included, and 0 where nothing is
	// acknowledged (UC, UD).
	OnSent(now mono.Time, bytes, inflight uint32)
	// OnAck tells of each acknowledgement, READ response and NACK, also of those that
	// acknowledge nothing new: their marks count.
	OnAck(now mono.Time, s Sample)
	// OnCNP tells of a congestion notification packet (IBTA annex A17.9.3).
	OnCNP(now mono.Time)
	// OnLoss tells that so many packets have newly been found lost, by feedback or by a
	// timeout.
	OnLoss(now mono.Time, lost uint32, timeout bool)
	// OnTimeout is called when Deadline has passed, perhaps long ago.
	OnTimeout(now mono.Time)
	// Deadline is the next instant at which the algorithm wants to be called,
	// mono.Never if at none.
	Deadline() mono.Time
	// Limits returns the congestion window in bytes of payload and the rate in bits per
	// second of what packets take on the link, each possibly Unlimited. Whatever they
	// are, one packet may always be in flight.
	Limits() (windowBytes, rateBps uint64)
}

// Shrinker is a Controller whose window shrinks for other reasons than congestion:
// MP-RDMA's, for a path that is too slow (MP-RDMA 3.3) and for an acknowledgement
// that found nothing to send (3.5).
type Shrinker interface {
	// Shrink takes packets off the window; OnAck has been called for the acknowledgement
	// that is the reason.
	Shrink(packets int)
}
