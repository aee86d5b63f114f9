package qp

import (
	"cmp"
	"time"
)

// Tuning is what depends on who runs a queue pair: hardware and simulations of it are
// punctual, software is late and pays for each packet by itself. The zero value is as
// hardware would do it.
type Tuning struct {
	// AckBehind is how many requests may leave before an acknowledgement of RC that is due,
	// so that it can be the last packet of their super-frame.
	AckBehind int8
	// LinkOverhead are the bytes that a packet takes on the link besides its Ethernet frame,
	// for pacing; zero: 24, Ethernet's preamble, FCS and gap. Negative: none.
	LinkOverhead int8
	// AckDepth is how many acknowledgements of an extended transport may wait, as for a link
	// that is paused; zero: 4096. The oldest are lost then.
	AckDepth int16
	// AcksPerWindow is how often RC asks for an acknowledgement while packets follow each
	// other (AckReq), besides wherever sending stops. Zero: four times, and at the end of each
	// message too.
	AcksPerWindow int32
	// PacerCredit is how much time a paced sender that was called late may make up for.
	PacerCredit time.Duration
	// TailProbe is after which time at least RC asks once more for an acknowledgement that is
	// missing; a few round trips if these are longer. Zero: with the timeout only.
	TailProbe time.Duration
	// PathSeed is the seed of random paths; zero: made of QPN and PSN, which other hosts may
	// have too.
	PathSeed uint64
}

// Software is the tuning of the daemon. An acknowledgement by itself costs it as much as a
// super-frame of data, so there are few of them, and they leave behind data; its timers are
// late by tens of microseconds, which the pacer's credit makes up for; what is lost at the end of a
// burst is asked for early, since acknowledgements are so few; and its links are
// TAP devices and sockets, which carry frames and nothing else.
var Software = Tuning{AckBehind: 32, AcksPerWindow: 4, PacerCredit: 200 * time.Microsecond, TailProbe: time.Millisecond, LinkOverhead: -1}

// linkBytes returns what the link adds to a frame.
func (t *Tuning) linkBytes() int {
	const preamble, fcs, gap = 8, 4, 12
	switch {
	case t.LinkOverhead < 0:
		return 0
	case t.LinkOverhead == 0:
		return preamble + fcs + gap
	}
	return int(t.LinkOverhead)
}

// acksPerWindow is AcksPerWindow or its default. With less than two a sender that fills its window
// would stand still for a round trip.
func (t *Tuning) acksPerWindow() uint32 { return uint32(cmp.Or(t.AcksPerWindow, 4)) }

// ackDepth is AckDepth or its default.
func (t *Tuning) ackDepth() int { return int(cmp.Or(t.AckDepth, 4096)) }
