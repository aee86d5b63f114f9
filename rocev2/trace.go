package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// NextTracer waits for a queue pair that connects. It is shown the one that becomes
// ready to receive (RTR) and returns who traces it.
type NextTracer func(now mono.Time, q QPInfo) qp.Tracer

// SetTracer makes t see what queue pair num does, and describes the queue pair. The
// tracer that there was is told that it is closed.
func (n *NIC) SetTracer(now mono.Time, num bth.QPN, t qp.Tracer) (QPInfo, error) {
	q := n.lookupQP(num)
	if q == nil {
		return QPInfo{}, fail("trace", "qp: no queue pair has this number", ErrInvalid)
	}
	q.core.SetTracer(now, t)
	return q.info(), nil
}

// TraceNext makes f choose the tracer of the next queue pair of a connected service that
// becomes ready to receive. Only one can wait; nil gives up waiting.
func (n *NIC) TraceNext(f NextTracer) error {
	if f != nil && n.next != nil {
		return fail("trace", "next queue pair: somebody waits for it", ErrBusy)
	}
	n.next = f
	return nil
}

// Untrace ends what SetTracer or TraceNext has begun for t.
func (n *NIC) Untrace(t qp.Tracer) {
	for q := range n.obj.qps.all {
		q.core.Untrace(t)
	}
}

// connecting shows q, which has become ready to receive, to whoever waits for it.
func (n *NIC) connecting(now mono.Time, q *QueuePair) {
	if f := n.next; f != nil && q.typ != qp.UD {
		n.next = nil
		q.core.SetTracer(now, f(now, q.info()))
	}
}
