// Package trace records the events of a queue pair (qp.Tracer), stores them as lines of JSON or as CSV, and draws
// them: the time-sequence graph, the window, round-trip times, the out-of-order degree and the receiver's state.
package trace

import (
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
)

// Record is one line of a trace. Fields that an event does not have are omitted. PSNs are those of the wire. Event
// selects the fields (qp.TraceKind). There are also "start", the first line, "end", the last one, and "skipped",
// which replaces lost events up to its time.
type Record struct {
	T        int64   `json:"t"` // nanoseconds since the start
	Event    string  `json:"event"`
	Response bool    `json:"response,omitempty"` // the event belongs to READ responses
	PSN      *uint32 `json:"psn,omitempty"`      // sent, received; ack: the expected PSN
	Span     uint32  `json:"span,omitempty"`     // number of PSNs of a sent packet, if not one
	Length   uint32  `json:"length,omitempty"`   // payload bytes
	Rtx      bool    `json:"rtx,omitempty"`      // retransmission
	SACK     *uint32 `json:"sack,omitempty"`     // PSN acknowledged ahead of a gap
	NAK      bool    `json:"nak,omitempty"`      // PSN is missing
	Refused  bool    `json:"refused,omitempty"`  // the receiver could not track the packet
	ECE      bool    `json:"ece,omitempty"`      // the packet was marked
	RTT      int64   `json:"rtt_ns,omitempty"`
	Verdict  string  `json:"verdict,omitempty"` // in-order, held, duplicate, beyond, refused
	Degree   uint32  `json:"degree,omitempty"`  // out-of-order degree: PSN - expected
	Lost     uint64  `json:"lost,omitempty"`    // timeout: PSNs; skipped, end: lost events
	Window   *uint64 `json:"window,omitempty"`  // limits: bytes, absent: no limit
	Rate     *uint64 `json:"rate,omitempty"`    // limits: bits per second, absent: no limit
	Bytes    int     `json:"bytes,omitempty"`   // footprint
	// Fields has the header fields of a registered transport (profile.Register) in the packet or the acknowledgement, by name.
	Fields map[string]uint64 `json:"fields,omitempty"`
	// Flor is Flor's information in the packet, if the queue pair carries Flor.
	Flor   *flor.Info `json:"flor,omitempty"`
	Start  *Start     `json:"start,omitempty"`
	Events uint64     `json:"events,omitempty"` // end: number of lines between the first and the last
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

// newRecord returns the record of e, t after the start.
func newRecord(t mono.Time, e *qp.TraceEvent) Record {
	r := Record{T: int64(t), Event: e.Kind.String(), Response: e.Response, Fields: qp.ReadFields(e.Fields, e.Own)}
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

// limited returns v, nil if it means no limit.
func limited(v uint64) *uint64 {
	if v == ccalgo.Unlimited {
		return nil
	}
	return &v
}
