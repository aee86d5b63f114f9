package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// Eunomia is the sender's agent of Mahmood et al., "Orderly Management of Packets in RDMA by Eunomia", sections 3.2.2 and
// 3.2.3. It filters the feedback to another recovery. A SACK never triggers that recovery; it only marks the packet if the
// recovery has marks (selective repeat), and is ignored otherwise (go-back-N). A NACK of a packet that the receiver could
// not track triggers the recovery, and so does a timeout, which repairs losses behind which few packets arrive.
type Eunomia struct {
	Recovery
	marker  Marker // nil: the recovery has no marks
	timeout timeout
}

// NewEunomia returns an agent for inner.
func NewEunomia(inner Recovery) *Eunomia {
	e := &Eunomia{Recovery: inner}
	e.marker, _ = inner.(Marker)
	return e
}

// newEunomia makes an agent for go-back-N, as in the paper's lossless networks, or for selective repeat.
func newEunomia(r *param.Reader) Recovery {
	timeout := readTimeout(r, 0)
	inner := Recovery(NewGoBackN())
	if r.Bool("selective_repeat", false) {
		inner = readSelective(r)
	}
	e := NewEunomia(inner)
	e.timeout = timeout
	e.setTimeout()
	return e
}

// SetTimeout implements Recovery. Only the timeout detects a loss behind which few packets arrive, so the paper demands one
// as short as IRN's (3.2.3), which is 320 us; the timeout of a queue pair is a hundred times that.
func (e *Eunomia) SetTimeout(d time.Duration) {
	e.timeout.SetTimeout(d)
	e.setTimeout()
}

// setTimeout passes the present timeout to the inner recovery.
func (e *Eunomia) setTimeout() { e.Recovery.SetTimeout(e.timeout.length()) }

// Reset implements Recovery.
func (e *Eunomia) Reset(psn bth.PSN) {
	e.Recovery.Reset(psn)
	e.timeout.backoff.progress()
	e.setTimeout()
}

// OnTimeout implements Recovery.
func (e *Eunomia) OnTimeout(now mono.Time) Outcome {
	e.timeout.backoff.expired()
	e.setTimeout()
	return e.Recovery.OnTimeout(now)
}

// OnFeedback implements Recovery.
func (e *Eunomia) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	marked := uint32(0)
	if f.HasSACK && !f.Refused && e.marker != nil && e.marker.Mark(f.SACK) {
		marked = 1
	}
	out := e.Recovery.OnFeedback(now, f)
	if out.Acked > 0 {
		e.timeout.backoff.progress()
		e.setTimeout()
	}
	out.Delivered += marked
	return out
}
