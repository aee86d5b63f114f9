package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// NextTracer returns the tracer of a queue pair that has become ready to receive (RTR).
type NextTracer func(now mono.Time, q QPInfo) qp.Tracer

// SetTracer makes t trace queue pair num, and describes the queue pair. A previous tracer is closed.
func (n *NIC) SetTracer(now mono.Time, num bth.QPN, t qp.Tracer) (QPInfo, error) {
	q := n.lookupQP(num)
	if q == nil {
		return QPInfo{}, fail("trace", "qp: no queue pair has this number", ErrInvalid)
	}
	q.core.SetTracer(now, t)
	return q.info(), nil
}

// TraceNext makes f choose the tracer of the next queue pair of a connected service that becomes ready to receive. It
// fails if another f waits. A nil f cancels the waiting.
func (n *NIC) TraceNext(f NextTracer) error {
	if f != nil && n.next != nil {
		return fail("trace", "next queue pair: another tracer waits for it", ErrBusy)
	}
	n.next = f
	return nil
}

// Untrace ends the tracing by t.
func (n *NIC) Untrace(t qp.Tracer) {
	for q := range n.obj.qps.All {
		q.core.Untrace(t)
	}
}

// connecting starts the tracing of q, which has become ready to receive, if TraceNext waits for one.
func (n *NIC) connecting(now mono.Time, q *QueuePair) {
	if f := n.next; f != nil && q.typ != qp.UD {
		n.next = nil
		q.core.SetTracer(now, f(now, q.info()))
	}
}
