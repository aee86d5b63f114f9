package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
)

// notifier tells the sender of marked packets about them, in the two ways that
// standard frames have: by CNPs, as the notification point of DCQCN (IBTA annex
// A17.9.2; Zhu et al., SIGCOMM 2015, section 3.1), and by the BECN bit of
// acknowledgements, for senders whose window follows each of them. A peer that
// does not know a way ignores it.
//
// The bit stands for all packets that an acknowledgement covers. How many of them
// were marked, standard frames cannot say.
type notifier struct {
	interval time.Duration // [N] at most one CNP each; 0: no CNPs
	last     mono.Time     // when the last one became due
	due      bool          // a CNP is to be sent
	began    bool          // a CNP has been sent before
	echo     bool          // a packet was marked since the last acknowledgement
}

// marked takes note of a packet that experienced congestion.
func (n *notifier) marked(now mono.Time) {
	n.echo = true
	if n.interval > 0 && (!n.began || now.Sub(n.last) >= n.interval) {
		n.due, n.began, n.last = true, true, now
	}
}

// reset forgets what was marked.
func (n *notifier) reset() { *n = notifier{interval: n.interval} }

// notable reports whether the sender of op can be made to send less of it: it is
// data, not a mere acknowledgement.
func notable(op bth.Opcode) bool { return op.IsRequest() || op.IsReadResponse() }

// pollCNP fills t with a CNP if one is due (IBTA annex A17.9.3).
func (q *QP) pollCNP(t *Transmit) bool {
	if !q.np.due || q.state < RTR || q.state > SQE {
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

// ECNCapable reports whether what is sent is to be marked as ECN-capable: the
// congestion control learns from it, and hears of it. The senders of datagrams
// hear nothing.
func (q *QP) ECNCapable() bool { return q.cfg.Type != UD && q.req.ctl.ECNCapable() }

// Limits returns the congestion window in bytes and the rate in bits per second,
// each possibly ccalgo.Unlimited.
func (q *QP) Limits() (windowBytes, rateBps uint64) {
	if !q.sending() {
		return ccalgo.Unlimited, ccalgo.Unlimited
	}
	return q.req.limits()
}
