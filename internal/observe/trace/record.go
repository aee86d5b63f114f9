// Package trace records what a queue pair does (qp.Tracer), stores it as lines of JSON or
// as CSV, and draws it: the time-sequence graph, the window, round-trip times, the
// out-of-order degree and the receiver's state.
package trace

import (
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
)

// Record is one line of a trace. Fields that an event does not have are left out. PSNs
// are those of the wire; Event says which fields there are (qp.TraceKind), besides the
// first line, "start", the last one, "end", and "skipped", which stands for events up to then that found no room.
type Record struct {
	T        int64   `json:"t"` // nanoseconds since the start
	Event    string  `json:"event"`
	Response bool    `json:"response,omitempty"` // it is of READ responses
	PSN      *uint32 `json:"psn,omitempty"`      // sent, received; ack: the expected one
	Span     uint32  `json:"span,omitempty"`     // PSNs that a sent packet takes, if not one
	Length   uint32  `json:"length,omitempty"`   // bytes of payload
	Rtx      bool    `json:"rtx,omitempty"`      // sent again
	SACK     *uint32 `json:"sack,omitempty"`     // PSN acknowledged ahead of a gap
	NAK      bool    `json:"nak,omitempty"`      // PSN is missing
	Refused  bool    `json:"refused,omitempty"`  // the packet could not be tracked
	ECE      bool    `json:"ece,omitempty"`      // the packet was marked
	RTT      int64   `json:"rtt_ns,omitempty"`
	Verdict  string  `json:"verdict,omitempty"` // in-order, held, duplicate, beyond, refused
	Degree   uint32  `json:"degree,omitempty"`  // out-of-order degree: PSN - expected
	Lost     uint64  `json:"lost,omitempty"`    // timeout: PSNs; skipped, end: events that found no room
	Window   *uint64 `json:"window,omitempty"`  // limits: bytes, absent if there is no limit
	Rate     *uint64 `json:"rate,omitempty"`    // limits: bits per second, likewise
	Bytes    int     `json:"bytes,omitempty"`   // footprint
	// Flor is what the packet says to Flor, if the trace is of a queue pair that carries it.
	Flor   *flor.Info `json:"flor,omitempty"`
	Start  *Start     `json:"start,omitempty"`
	Events uint64     `json:"events,omitempty"` // end: how many lines there are between
}

// Start describes the queue pair of a trace.
type Start struct {
	Time    time.Time `json:"time"`
	NIC     string    `json:"nic"`
	QPN     uint32    `json:"qpn"`
	Dest    uint32    `json:"dest_qpn"`
	Profile string    `json:"profile"`
	MTU     int       `json:"path_mtu"` // bytes
	SQPSN   uint32    `json:"sq_psn"`
	RQPSN   uint32    `json:"rq_psn"`
}

var verdicts = [...]string{
	reorder.InOrder: "in-order", reorder.Held: "held", reorder.Duplicate: "duplicate", reorder.Beyond: "beyond",
}

// newRecord says what e says, t after the start.
func newRecord(t mono.Time, e *qp.TraceEvent) Record {
	r := Record{T: int64(t), Event: e.Kind.String(), Response: e.Response}
	psn := e.PSN.Uint32()
	switch e.Kind {
	case qp.TraceSent:
		r.PSN, r.Length, r.Rtx = &psn, e.Length, e.Retransmission
		if e.Span > 1 {
			r.Span = e.Span
		}
	case qp.TraceReceived:
		r.PSN, r.Length, r.Degree, r.Verdict = &psn, e.Length, e.Degree, verdicts[e.Verdict]
		if e.Drop != qp.Accepted && e.Drop != qp.DropDuplicate && e.Drop != qp.DropOutOfOrder {
			r.Verdict = "refused"
		}
	case qp.TraceAck:
		r.acknowledges(e)
	case qp.TraceTimeout:
		r.PSN, r.Lost = &psn, uint64(e.Lost)
	case qp.TraceLimits:
		r.Window, r.Rate = limited(e.Window), limited(e.Rate)
	case qp.TraceFootprint:
		r.Bytes = e.Bytes
	}
	return r
}

func (r *Record) acknowledges(e *qp.TraceEvent) {
	f := &e.Feedback
	psn := f.Expected.Uint32()
	r.PSN, r.NAK, r.Refused, r.ECE, r.RTT = &psn, f.Gap, f.Refused, f.ECE, int64(e.RTT)
	if f.HasSACK {
		sack := f.SACK.Uint32()
		r.SACK = &sack
	}
}

// limited returns v unless it stands for no limit.
func limited(v uint64) *uint64 {
	if v == ccalgo.Unlimited {
		return nil
	}
	return &v
}
