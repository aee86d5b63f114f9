package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// Tracer is shown what a queue pair does, for people who want to see how a connection
// behaves. It belongs to the caller; a queue pair without one pays a comparison. Its
// methods are called synchronously and must not call back.
type Tracer interface {
	// Trace is shown an event. Times never go back.
	Trace(now mono.Time, e TraceEvent)
	// Closed tells that no event follows: the queue pair is gone, or another tracer sees it.
	Closed()
}

// TraceKind says what has happened, and which fields of a TraceEvent have a meaning.
type TraceKind uint8

// Kinds of events.
const (
	// TraceSent is a packet that was sent: PSN, Span, Length, Retransmission, Response, Packet.
	TraceSent TraceKind = iota
	// TraceAck is what an acknowledgement said: Feedback, RTT, Response.
	TraceAck
	// TraceReceived is a request or a response that came: PSN, Length, Verdict, Drop,
	// Degree, Response, Packet. Datagrams are in order.
	TraceReceived
	// TraceLimits are new limits of congestion control: Window, Rate, and Response if
	// responses have their own.
	TraceLimits
	// TraceTimeout is a retransmission timeout: PSN (the lowest unacknowledged one),
	// Lost, Response.
	TraceTimeout
	// TraceFootprint is a new size of the receiver's tracking state: Bytes, Requests, Bitmap.
	TraceFootprint
)

// String returns the name of the kind.
func (k TraceKind) String() string {
	return [...]string{"sent", "ack", "received", "limits", "timeout", "footprint"}[k]
}

// TraceEvent is one event in the life of a queue pair. It goes by value, so that
// tracing allocates nothing.
type TraceEvent struct {
	Kind TraceKind
	// Response says that this is of READ responses and atomics' results, which extended
	// transports number by themselves (IRN 5.2: rPSN).
	Response       bool
	Retransmission bool
	PSN            bth.PSN
	Span           uint32 // PSNs that the packet takes: those of its responses, for a READ of RC
	Length         uint32 // bytes of payload
	Feedback       reorder.Feedback
	RTT            time.Duration // zero: none was measured
	// Verdict is InOrder, Held, Duplicate or Beyond if Drop is none of the other reasons.
	Verdict reorder.Verdict
	Drop    Drop
	Degree  uint32 // out-of-order degree: how far PSN is ahead of the expected one
	Lost    uint32 // PSNs that count as lost
	Window  uint64 // bytes, or ccalgo.Unlimited
	Rate    uint64 // bits per second, or ccalgo.Unlimited
	Bytes   int    // of state, as papers count (reorder.Tracker.Footprint)
	// Requests are those of Bytes that are not of READ responses, Bitmap those of them that are bits of packets
	// (reorder.Bitmapped).
	Requests, Bitmap int
	// Packet is what was sent or has come. It and its payload are the queue pair's again when Trace returns.
	Packet *bth.Packet
}

// tracing is the tracer of a queue pair and what it was told last.
type tracing struct {
	to     Tracer
	limits [2]limits // of requests and of responses
	bytes  int
}

// limits are those of congestion control.
type limits struct{ window, rate uint64 }

// SetTracer makes t see what the queue pair does from now on, instead of who did so
// before. The present limits and footprint are its first events.
func (q *QP) SetTracer(now mono.Time, t Tracer) {
	q.CloseTrace()
	q.trace = &tracing{to: t, bytes: -1}
	q.traceState(now)
}

// Untrace ends what SetTracer has begun, unless another tracer has taken over.
func (q *QP) Untrace(t Tracer) {
	if q.trace != nil && q.trace.to == t {
		q.trace = nil
	}
}

// CloseTrace tells the tracer, if there is one, that nothing follows.
func (q *QP) CloseTrace() {
	if q.trace != nil {
		q.trace.to.Closed()
		q.trace = nil
	}
}

// traceState shows limits and footprint if they have changed. Every input may do so,
// and so may a poll, which finds that there is nothing to send.
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
		if a := &q.x.in.responses; a.each && a.active() {
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

// limit shows limits that are not the last ones.
func (t *tracing) limit(now mono.Time, last *limits, l limits, response bool) {
	if *last != l {
		*last = l
		t.to.Trace(now, TraceEvent{Kind: TraceLimits, Window: l.window, Rate: l.rate, Response: response})
	}
}

// traceSent shows a packet that takes span PSNs.
func (q *QP) traceSent(now mono.Time, p *bth.Packet, span uint32, again bool) {
	if q.trace != nil {
		q.trace.to.Trace(now, TraceEvent{Kind: TraceSent, PSN: p.PSN, Span: span, Length: uint32(len(p.Payload)),
			Retransmission: again, Response: !p.Opcode.IsRequest(), Packet: p})
	}
}

// traceAck shows what an acknowledgement of requests or, of extended transports, of
// responses says.
func (q *QP) traceAck(now mono.Time, f *reorder.Feedback, rtt time.Duration, response bool) {
	if q.trace != nil {
		q.trace.to.Trace(now, TraceEvent{Kind: TraceAck, Feedback: *f, RTT: rtt, Response: response})
	}
}

// traceTimeout shows a retransmission timeout at which lost PSNs from una on were
// given up.
func (q *QP) traceTimeout(now mono.Time, una bth.PSN, lost uint32, response bool) {
	if q.trace != nil {
		q.trace.to.Trace(now, TraceEvent{Kind: TraceTimeout, PSN: una, Lost: lost, Response: response})
	}
}

// watchedReceive is receive for a queue pair with a tracer, which is shown packets with
// data behind what they cause, or for one whose degrees are counted.
func (q *QP) watchedReceive(now mono.Time, p *bth.Packet, m RxMeta) Drop {
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
		q.trace.to.Trace(now, e)
	}
	q.traceState(now)
	return d
}

// expects returns the PSN that is next where p belongs; false for what is not numbered
// like packets with data, such as acknowledgements.
func (q *QP) expects(p *bth.Packet) (bth.PSN, bool) {
	switch {
	case p.Opcode.IsExt() != (q.x != nil):
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

// verdictOf says in the words of trackers what became of a packet.
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
