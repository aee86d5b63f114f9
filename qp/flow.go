package qp

import "roced.io/roced/ccalgo"

// Flow is the destination of a queue pair's packets.
type Flow = ccalgo.Flow

// SetFlow reports the destination to shared congestion control. Call it before packets are sent.
func (q *QP) SetFlow(f Flow) {
	for _, c := range q.controllers() {
		if b, ok := c.(ccalgo.Bound); ok {
			b.Bind(f)
		}
	}
}

// ClearFlow reports that the queue pair sends no more packets there.
func (q *QP) ClearFlow() {
	for _, c := range q.controllers() {
		if b, ok := c.(ccalgo.Bound); ok {
			b.Unbind()
		}
	}
}

// controllers returns the controllers of requests and, if there is one, of responses.
func (q *QP) controllers() [2]ccalgo.Controller {
	all := [2]ccalgo.Controller{q.req.ctl}
	if q.x != nil {
		all[1] = q.x.responses.ctl
	}
	return all
}
