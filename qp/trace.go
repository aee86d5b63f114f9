package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// Tracer observes the events of a queue pair, to show how a connection behaves. It belongs to the caller. A queue
// pair without a tracer pays one comparison. Its methods are called synchronously and must not call the queue pair.
type Tracer interface {
	// Trace observes an event. Times never go back.
	Trace(now mono.Time, e TraceEvent)
	// Closed is called after the last event: the queue pair is gone, or another tracer observes it.
	Closed()
}

// TraceKind is the kind of an event. It determines the fields of a TraceEvent that are set.
type TraceKind uint8

// Kinds of events.
const (
	// TraceSent is a sent packet: PSN, Span, Length, Retransmission, Response, Packet.
	TraceSent TraceKind = iota
	// TraceAck is an acknowledgement: Feedback, RTT, Response.
	TraceAck
	// TraceReceived is a received request or response: PSN, Length, Verdict, Drop, Degree, Response, Packet.
	// Datagrams are in order.
	TraceReceived
	// TraceLimits are new limits of congestion control: Window, Rate, and Response if responses have their own.
	TraceLimits
	// TraceTimeout is a retransmission timeout: PSN (the lowest unacknowledged one), Lost, Response.
	TraceTimeout
	// TraceFootprint is a new size of the receiver's tracking state: Bytes, Requests, Bitmap.
	TraceFootprint
)

// String returns the name of the kind.
func (k TraceKind) String() string {
	return [...]string{"sent", "ack", "received", "limits", "timeout", "footprint"}[k]
}

// TraceEvent is an event of a queue pair. It is passed by value, so that tracing allocates no memory.
type TraceEvent struct {
	Kind TraceKind
	// Response marks READ responses and results of atomics, which extended transports number separately (IRN 5.2: rPSN).
	Response       bool
	Retransmission bool
	PSN            bth.PSN
	Span           uint32 // PSNs of the packet; for a READ of RC, those of its responses
	Length         uint32 // bytes of payload
	Feedback       reorder.Feedback
	RTT            time.Duration // zero: not measured
	// Verdict is InOrder, Held, Duplicate or Beyond, unless Drop has another reason.
	Verdict reorder.Verdict
	Drop    Drop
	Degree  uint32 // out-of-order degree: how far PSN is ahead of the expected one
	Lost    uint32 // PSNs counted as lost
	Window  uint64 // bytes, or ccalgo.Unlimited
	Rate    uint64 // bits per second, or ccalgo.Unlimited
	Bytes   int    // of tracking state, as papers count it (reorder.Tracker.Footprint)
	// Requests is the part of Bytes that does not track READ responses. Bitmap is the part of Requests that is bits of
	// packets (reorder.Bitmapped).
	Requests, Bitmap int
	// Packet was sent or received. It and its payload are valid until Trace returns.
	Packet *bth.Packet
	// Fields are the fields of the transport in a packet or an acknowledgement, and Own their bytes, valid as long.
	Fields []Field
	Own    []byte
}

// tracing is the tracer of a queue pair and the last state that it observed.
type tracing struct {
	to     Tracer
	limits [2]limits // of requests and of responses
	bytes  int
}

// limits are those of congestion control.
type limits struct{ window, rate uint64 }

// SetTracer replaces the tracer by t. The present limits and footprint are its first events.
func (q *QP) SetTracer(now mono.Time, t Tracer) {
	q.CloseTrace()
	q.trace = &tracing{to: t, bytes: -1}
	q.traceState(now)
}

// Untrace removes t if it is the tracer.
func (q *QP) Untrace(t Tracer) {
	if q.trace != nil && q.trace.to == t {
		q.trace = nil
	}
}

// CloseTrace removes the tracer, if there is one, and calls its Closed.
func (q *QP) CloseTrace() {
	if q.trace != nil {
		q.trace.to.Closed()
		q.trace = nil
	}
}

// traceState reports limits and footprint if they have changed. Every input may change them, and so may a poll that
// finds no packet.
func (q *QP) traceState(now mono.Time) {
	t := q.trace
	if t == nil {
		return
	}
	window, rate := q.Limits()
	t.limit(now, &t.limits[0], limits{window, rate}, false)
	requests := q.resp.trk.Footprint()
	n := requests
	if q.x != nil {
		n += q.x.out.trk.Footprint()
		if a := &q.x.responses; a.perPacket && a.active() {
			window, rate = a.limits()
			t.limit(now, &t.limits[1], limits{window, rate}, true)
		}
	}
	if n != t.bytes {
		t.bytes = n
		e := TraceEvent{Kind: TraceFootprint, Bytes: n, Requests: requests}
		if b, ok := q.resp.trk.(reorder.Bitmapped); ok {
			e.Bitmap = b.Bitmap()
		}
		t.to.Trace(now, e)
	}
}

// limit reports limits that differ from the last ones.
func (t *tracing) limit(now mono.Time, last *limits, l limits, response bool) {
	if *last != l {
		*last = l
		t.to.Trace(now, TraceEvent{Kind: TraceLimits, Window: l.window, Rate: l.rate, Response: response})
	}
}

// traceSent reports a sent packet of span PSNs.
func (q *QP) traceSent(now mono.Time, p *bth.Packet, span uint32, retransmit bool) {
	if q.trace != nil {
		q.tracePacket(now, p, span, retransmit)
	}
}

func (q *QP) tracePacket(now mono.Time, p *bth.Packet, span uint32, retransmit bool) {
	e := TraceEvent{Kind: TraceSent, PSN: p.PSN, Span: span, Length: uint32(len(p.Payload)),
		Retransmission: retransmit, Response: !p.Opcode.IsRequest(), Packet: p}
	q.traceFields(&e)
	q.trace.to.Trace(now, e)
}

// traceFields adds the fields of the transport in the packet of e.
func (q *QP) traceFields(e *TraceEvent) {
	if q.x != nil && q.x.fields.Fields != nil {
		e.Fields, e.Own = q.x.fields.Data, e.Packet.Ext.Own(&q.scratch.own)
	}
}

// traceAck reports an acknowledgement of requests or, in extended transports, of responses.
func (q *QP) traceAck(now mono.Time, f *reorder.Feedback, rtt time.Duration, response bool) {
	if q.trace != nil {
		q.traceFeedback(now, f, rtt, response)
	}
}

func (q *QP) traceFeedback(now mono.Time, f *reorder.Feedback, rtt time.Duration, response bool) {
	e := TraceEvent{Kind: TraceAck, Feedback: *f, RTT: rtt, Response: response}
	if q.x != nil && q.x.fields.Fields != nil { // the scratch holds the bytes of the acknowledgement being processed
		e.Fields, e.Own = q.x.fields.Ack, q.scratch.own[:padded(int(q.x.fields.ack))]
	}
	q.trace.to.Trace(now, e)
}

// traceTimeout reports a retransmission timeout that counts lost PSNs from una on.
func (q *QP) traceTimeout(now mono.Time, una bth.PSN, lost uint32, response bool) {
	if q.trace != nil {
		q.trace.to.Trace(now, TraceEvent{Kind: TraceTimeout, PSN: una, Lost: lost, Response: response})
	}
}

// tracedReceive is receive for a queue pair with a tracer or with distributions. It reports packets with data after
// the events that they cause.
func (q *QP) tracedReceive(now mono.Time, p *bth.Packet, m *RxMeta) Drop {
	expected, numbered := q.expects(p)
	d := q.receive(now, p, m)
	if !numbered {
		q.traceState(now)
		return d
	}
	degree := uint32(max(p.PSN.Diff(expected), 0))
	if h := q.ctr.Distributions; h != nil && q.cfg.Type != UD && (d == Accepted || d == DropOutOfOrder) {
		h.Degree.add(uint64(degree))
	}
	if q.trace != nil {
		e := TraceEvent{Kind: TraceReceived, PSN: p.PSN, Length: uint32(len(p.Payload)), Drop: d, Response: !p.Opcode.IsRequest(), Packet: p}
		e.Degree, e.Verdict = degree, verdictOf(d, degree)
		q.traceFields(&e)
		q.trace.to.Trace(now, e)
	}
	q.traceState(now)
	return d
}

// expects returns the next expected PSN in the direction of p. It returns false for packets that have no PSN of their
// own, such as acknowledgements.
func (q *QP) expects(p *bth.Packet) (bth.PSN, bool) {
	switch {
	case p.Opcode.IsMRC():
		return q.resp.trk.Expected(), q.mrc() != nil && p.Opcode.IsWrite()
	case q.mrc() != nil, p.Opcode.IsExt() != (q.x != nil):
		return bth.PSN{}, false
	case q.cfg.Type == UD:
		return p.PSN, p.Opcode.IsSend()
	case p.Opcode.IsRequest():
		return q.resp.trk.Expected(), true
	case p.Opcode.IsReadResponse() || p.Opcode.IsAtomicAck():
		if q.x != nil {
			return q.x.out.trk.Expected(), true
		}
		return q.req.una, true
	}
	return bth.PSN{}, false
}

// verdictOf returns the tracker verdict that corresponds to the result of Receive.
func verdictOf(d Drop, degree uint32) reorder.Verdict {
	switch {
	case d == DropDuplicate:
		return reorder.Duplicate
	case d == DropOutOfOrder:
		return reorder.Beyond
	case degree > 0:
		return reorder.Held
	}
	return reorder.InOrder
}
