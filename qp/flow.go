package qp

import "roced.io/roced/ccalgo"

// Flow is where the packets of a queue pair go.
type Flow = ccalgo.Flow

// SetFlow tells congestion control that is shared where packets go; it comes before them.
func (q *QP) SetFlow(f Flow) {
	for _, c := range q.controllers() {
		if b, ok := c.(ccalgo.Bound); ok {
			b.Bind(f)
		}
	}
}

// ClearFlow tells it that nothing goes there any more.
func (q *QP) ClearFlow() {
	for _, c := range q.controllers() {
		if b, ok := c.(ccalgo.Bound); ok {
			b.Unbind()
		}
	}
}

// controllers are those of requests and, if they have one, of responses.
func (q *QP) controllers() [2]ccalgo.Controller {
	all := [2]ccalgo.Controller{q.req.ctl}
	if q.x != nil {
		all[1] = q.x.in.responses.ctl
	}
	return all
}
