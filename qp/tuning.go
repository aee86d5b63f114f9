package qp

import (
	"cmp"
	"time"
)

// Tuning adapts a queue pair to its platform. Hardware and simulations of it are punctual; software is late and pays for
// each packet. The zero value is for hardware.
type Tuning struct {
	// AckBehind limits the requests that may leave before a due acknowledgement of RC, so that it can be the last packet
	// of their super-frame.
	AckBehind int8
	// LinkOverhead is the number of bytes per Ethernet frame that the link adds, for pacing. Zero: 24, for preamble, FCS
	// and gap. Negative: none.
	LinkOverhead int8
	// AckDepth limits the acknowledgements of an extended transport that wait, for example for a paused link; zero: 4096.
	// The oldest are dropped beyond it.
	AckDepth int16
	// AcksPerWindow is how often per window RC requests an acknowledgement (AckReq) while packets follow each other.
	// It does so additionally when sending stops. Zero: four times, and at the end of each message.
	AcksPerWindow int32
	// PacerCredit limits the time that a paced sender may catch up after a late call.
	PacerCredit time.Duration
	// TailProbe is the minimum probe timeout of RC (see standardPolicy). A few round trips apply if they are longer.
	// Zero: no probes.
	TailProbe time.Duration
	// PathSeed is the seed of random paths. Zero: derived from QPN and PSN, which other hosts may share.
	PathSeed uint64
}

// Software is the tuning of the daemon. A separate acknowledgement costs it as much as a super-frame of data, so it
// sends few of them, after data. Its timers are late by tens of microseconds, for which the pacer's credit
// compensates. Because acknowledgements are few, it probes early for tail losses. Its links are TAP devices and
// sockets, which carry frames without overhead.
var Software = Tuning{AckBehind: 32, AcksPerWindow: 4, PacerCredit: 200 * time.Microsecond, TailProbe: time.Millisecond, LinkOverhead: -1}

// linkBytes returns the bytes that the link adds to a frame.
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

// acksPerWindow returns AcksPerWindow or its default. With less than two, a sender that fills its window would stop for
// a round trip.
func (t *Tuning) acksPerWindow() uint32 { return uint32(cmp.Or(t.AcksPerWindow, 4)) }

// ackDepth returns AckDepth or its default.
func (t *Tuning) ackDepth() int { return int(cmp.Or(t.AckDepth, 4096)) }
