package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// notifier reports marked packets to their sender in the two ways of standard frames. CNPs implement the notification
// point of DCQCN (IBTA annex A17.9.2; Zhu et al., SIGCOMM 2015, section 3.1). The BECN bit of acknowledgements serves
// senders whose window follows each acknowledgement. A peer ignores an unsupported way.
//
// The bit covers all packets of an acknowledgement. Standard frames cannot carry the number of marked packets.
type notifier struct {
	last     mono.Time // when the last one became due
	interval uint32    // [N] at least these ns between two CNPs; 0: no CNPs
	due      bool      // a CNP is to be sent
	began    bool      // a CNP has been sent before
	echo     bool      // a packet was marked since the last acknowledgement
	withNAK  bool      // see Traits.CNPWithNAK
}

// marked records a packet that experienced congestion.
func (n *notifier) marked(now mono.Time) {
	n.echo = true
	if n.interval > 0 && (!n.began || now.Sub(n.last) >= time.Duration(n.interval)) {
		n.due, n.began, n.last = true, true, now
	}
}

// reordered records that a NAK answers a packet that arrived out of order.
func (n *notifier) reordered(now mono.Time) {
	if n.withNAK {
		n.marked(now)
	}
}

// reset clears all marks.
func (n *notifier) reset() { *n = notifier{interval: n.interval, withNAK: n.withNAK} }

// isData reports whether a packet of op is data whose sender can slow down, not a mere acknowledgement.
func isData(op bth.Opcode) bool { return op.IsRequest() || op.IsReadResponse() }

// pollCNP fills t with a CNP if one is due (IBTA annex A17.9.3).
func (q *QP) pollCNP(t *Transmit) bool {
	if !q.np.due || !q.receiving() {
		return false
	}
	q.np.due = false
	t.Packet.SetCNP(bth.QPN(q.attr.DestQPN))
	return true
}

// takeEcho returns the BECN bit of an acknowledgement that is being built.
func (q *QP) takeEcho() bool {
	echo := q.np.echo
	q.np.echo = false
	return echo
}

// ECNCapable reports whether packets must be sent as ECN-capable: congestion control uses marks, and the peer reports
// them. Senders of datagrams get no report.
func (q *QP) ECNCapable() bool { return q.cfg.Type != UD && q.req.ctl.ECNCapable() }

// NeedsTelemetry reports whether requests must carry telemetry, which acknowledgements return to OnTelemetry.
func (q *QP) NeedsTelemetry() bool { return q.cfg.Type == RC && q.req.control == telemetered }

// OnTelemetry takes the telemetry of an acknowledgement; call it right before Receive.
func (q *QP) OnTelemetry(now mono.Time, t *ccalgo.Telemetry) {
	if c, ok := q.req.ctl.(ccalgo.Telemetered); ok && q.sending() {
		c.OnTelemetry(now, t)
	}
}

// OnePath reports whether all packets of the connection have one path, in both directions.
func (q *QP) OnePath() bool { return q.x == nil || q.req.onePath && q.x.mrc == nil }

// Limits returns the congestion window in bytes and the rate in bits per second; each may be ccalgo.Unlimited.
func (q *QP) Limits() (windowBytes, rateBps uint64) {
	if !q.sending() {
		return ccalgo.Unlimited, ccalgo.Unlimited
	}
	return q.req.limits()
}
