// Package ccalgo implements congestion control. Each algorithm is a Controller: it receives events (packets sent,
// acknowledged, marked or lost) and returns a window, a rate, or both. A queue pair gets one from its profile, and a second
// one for READ responses if these have a window of their own (MP-RDMA).
//
// The API of this package is stable: releases of one major version only add to it. New methods come as optional interfaces,
// as Shrinker and Bound are, so that a Controller of another module keeps compiling.
package ccalgo

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Unlimited as a window or rate means no limit.
const Unlimited = ^uint64(0)

// Sample is one acknowledgement as seen by the sender.
type Sample struct {
	// Bytes is the payload of the packets that are newly known to have arrived, by cumulative or selective
	// acknowledgement. Each packet counts once. It is zero if the acknowledgement reports nothing new, and for a NACK of
	// a dropped packet.
	Bytes uint32
	// InFlight is the number of payload bytes believed to be in the network after the acknowledgement.
	InFlight uint32
	RTT      time.Duration // zero if not measured
	ECN      bool          // a packet experienced congestion
	// Receiver is the receiver's report. Only acknowledgements of MRC have it; otherwise it is zero.
	Receiver Receiver
}

// Receiver is the report of a receiver in a SACK or NACK of MRC.
type Receiver struct {
	// Reported is set in a SACK with congestion control state. The other fields but Reason are then valid.
	Reported bool
	Restore  bool  // restore the window from before the penalty
	Penalty  uint8 // reduction of the window that the receiver asks for, in 128ths of the bytes received
	// Reason is the reason of a NACK, which reports that one packet has been dropped; zero in a SACK. Its values are those of
	// bth.MRCReason.
	Reason     uint8
	OutOfOrder uint16 // packets that have arrived ahead of a gap, 15 bits
	// Received counts the bytes of all packets that have arrived, in units of 256, modulo 2^24.
	Received uint32
}

// Controller limits a sender. One queue pair owns it and calls it from one goroutine. It is deterministic: the same calls
// lead to the same state. Time never goes back from one call to the next, but may stand still or jump by days. All
// arguments are values that the controller may keep; no call may allocate memory.
//
// Reset comes first. Then the calls follow the order of events:
//
//   - OnSent, after a packet has been built;
//   - OnAck, after retrans.Recovery.OnFeedback has processed the same acknowledgement, then OnLoss if that found a loss;
//   - OnCNP, when a congestion notification packet arrives;
//   - OnTimeout, when Deadline has passed.
//
// Each of these calls may change the results of Limits and Deadline, which may be called at any time.
type Controller interface {
	// Reset sets the initial state for a path MTU in bytes.
	Reset(mtu int)
	// ECNCapable reports whether the algorithm uses ECN. If so, the NIC marks its packets as ECN-capable; otherwise
	// switches drop them instead of marking them (RFC 3168 section 5). The result never changes.
	ECNCapable() bool
	// OnSent reports a data packet with that many bytes of payload, new or retransmitted. inflight is the number of
	// bytes in the network, including the packet; it is 0 for UC and UD, which have no acknowledgements.
	OnSent(now mono.Time, bytes, inflight uint32)
	// OnAck reports each acknowledgement, READ response and NACK, also those that acknowledge nothing new, because
	// their marks count.
	OnAck(now mono.Time, s Sample)
	// OnCNP reports a congestion notification packet (IBTA annex A17.9.3).
	OnCNP(now mono.Time)
	// OnLoss reports the number of packets newly found lost, by feedback or, if timeout is set, by a timeout.
	OnLoss(now mono.Time, lost uint32, timeout bool)
	// OnTimeout must be called when Deadline has passed. It may be called late.
	OnTimeout(now mono.Time)
	// Deadline returns when OnTimeout is due, or mono.Never if no timer runs.
	Deadline() mono.Time
	// Limits returns the congestion window in bytes of payload, and the rate in bits per second on the link, headers
	// included. Either may be Unlimited. One packet may always be in flight, whatever the limits are.
	Limits() (windowBytes, rateBps uint64)
}

// Shrinker is a Controller whose window also shrinks for reasons other than congestion. MP-RDMA's does so for a path that
// is too slow (MP-RDMA 3.3), and for an acknowledgement that found no packet to send (3.5).
type Shrinker interface {
	// Shrink reduces the window by a number of packets. If an acknowledgement is the reason, OnAck precedes Shrink.
	Shrink(packets int)
}
