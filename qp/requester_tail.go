package qp

import (
	"math"
	"time"

	"roced.io/roced/plugin/mono"
)

// A tail loss probe (RFC 8985 7) notices early that an answer is missing. Behind the packet that
// asks for an acknowledgement nothing follows which would make the peer say what it lacks: if that packet
// or its answer is lost, only the timeout tells, which is thousands of round trips. So after a few
// of these one packet is sent again, and what the peer answers is handled as ever (IBTA vol.1
// 9.7.5.1.4: duplicates are acknowledged): no loss is taken for granted, and no retry used up.
//
// The first is the last packet: an acknowledgement of it is of all, and a packet ahead of a gap
// is answered by a NAK. The next is the oldest, for a peer that is silent because it has told of
// that gap before, and then by turns; each waits twice as long as the one before.

// roundTrip is how long answers take, smoothed, and by how much that varies (RFC 6298 2), in ns.
type roundTrip struct {
	mean, spread uint32
}

// add takes another one into account.
func (t *roundTrip) add(d time.Duration) {
	n := uint32(min(d, math.MaxInt32))
	if t.mean == 0 {
		*t = roundTrip{n, n / 2}
		return
	}
	diff := int32(n - t.mean)
	t.spread += uint32((max(diff, -diff) - int32(t.spread)) / 4)
	t.mean += uint32(diff / 8)
}

// patience is after which time without an answer a probe is sent. Whoever gives the peer longer than usual to answer
// (local ACK timeout 14, 67 ms) has probes as much later: on hosts that are busy an answer may be late by many round trips.
func (r *requester) patience() time.Duration {
	return max(time.Duration(r.trip.mean)+4*time.Duration(r.trip.spread), r.q.cfg.Tuning.TailProbe, r.q.ackTimeout()/probesOfTimeout)
}

// probesOfTimeout: a probe is not sent earlier than after such a part of the timeout.
const probesOfTimeout = 64

// probeDue is when a packet is to be sent again for want of an answer; never before a round trip has
// been measured, nor where the timeout is as near, nor under congestion control: a window that
// opens fills queues in which a packet takes a hundred times as long as those before it.
func (r *requester) probeDue() mono.Time {
	switch {
	case r.q.cfg.Tuning.TailProbe == 0, r.q.x != nil, !r.free:
		return mono.Never
	case !r.ask.pending(), r.trip.mean == 0, r.probing:
		return mono.Never
	}
	wait := r.patience() << r.probes
	if wait > r.q.ackTimeout()/2 {
		return mono.Never
	}
	return r.since.Add(wait)
}

// heard is told that the peer has got further, and how long a packet took if it was timed. After a
// probe nobody knows what was answered. If all are too early, they become rarer by and by, half as much time each; if
// they are because of losses, round trips that are timed between them outweigh that.
func (r *requester) heard(rtt time.Duration) {
	if r.probes > 0 {
		r.trip.spread = uint32(min(time.Duration(r.trip.spread)+r.patience()/8, math.MaxInt32))
	} else if rtt > 0 {
		r.trip.add(rtt)
	}
	r.probes, r.probing = 0, false
}
