package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// GoBackN is the loss recovery of standard RC (IBTA vol.1 9.7.5.2.8, 9.9.2): it retransmits all packets from the first
// lost one on.
//
//	una <= cur <= nxt
//
// Packets from una to cur are in the network. Packets from cur to nxt have been sent and are to be retransmitted.
type GoBackN struct {
	window
	timeout
	cur bth.PSN

	// A responder sends one NAK per gap. Until una moves, further NAKs are therefore copies of the first one, and are
	// ignored. If the retransmission is lost, only the timeout detects it. nakAt is the time of the NAK, or Never. Responders
	// that are not standard repeat NAKs at nakInterval (reorder.Strict).
	nakInterval uint32 // ns
	nakAt       mono.Time
}

// NewGoBackN returns a go-back-N recovery with an infinite timeout.
func NewGoBackN() *GoBackN { return &GoBackN{nakAt: mono.Never} }

// newGoBackN has no timeout of its own by default.
func newGoBackN(r *param.Reader) Recovery {
	g := NewGoBackN()
	g.timeout, g.nakInterval = readTimeout(r, 0), uint32(r.Value("nak_interval_us", 0, 0, 4e6)*1e3)
	return g
}

// Reset implements Recovery.
func (g *GoBackN) Reset(psn bth.PSN) {
	g.window, g.cur, g.nakAt = window{psn, psn}, psn, mono.Never
	g.restart(0)
}

// OnSent implements Recovery. The timer starts when a packet becomes outstanding, and again when the oldest packet is
// retransmitted.
func (g *GoBackN) OnSent(now mono.Time, psn bth.PSN, span uint32, _ bool) {
	if psn == g.una {
		g.base = now
	}
	end := psn.Add(int(span))
	sent := g.offset(end)
	if sent > g.outstanding() {
		g.nxt = end
	}
	if psn == g.cur || sent > g.offset(g.cur) {
		g.cur = end
	}
}

// SetSlowPeer declares that the peer may answer later than the timeout, because its process waits for a processor. Then,
// after a timeout, the acknowledgement of a packet that still waits for its retransmission shows that the timeout was
// premature, as in F-RTO (RFC 5682). The peer has the other packets too, or will NAK the first missing one.
func (g *GoBackN) SetSlowPeer(slow bool) { g.slowPeer = slow }

// OnFeedback implements Recovery.
func (g *GoBackN) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := g.offset(f.Expected)
	if acked > g.outstanding() {
		return Outcome{}
	}
	if acked > 0 {
		if acked > g.offset(g.cur) {
			g.cur = f.Expected
			if g.nakAt == mono.Never && g.slowPeer {
				g.cur = g.nxt
			}
		}
		g.una, g.nakAt = f.Expected, mono.Never
		g.restart(now)
	}
	out := Outcome{Acked: acked, Delivered: acked}
	repeated := g.nakInterval > 0 && g.nakAt != mono.Never && now.Sub(g.nakAt) >= time.Duration(g.nakInterval)
	if (f.Gap || f.Refused) && (g.nakAt == mono.Never || repeated) && g.cur != g.una {
		out.Lost = g.rewind()
		g.nakAt = now
	}
	return out
}

// OnRNR implements Recovery (IBTA vol.1 9.7.5.2.8).
func (g *GoBackN) OnRNR(mono.Time) {
	g.nakAt = mono.Never
	g.rewind()
}

// OnTimeout implements Recovery. A timeout is a new loss: the next NAK counts.
func (g *GoBackN) OnTimeout(mono.Time) Outcome {
	g.backoff.expired()
	g.nakAt = mono.Never
	return Outcome{Lost: g.rewind()}
}

// rewind schedules all outstanding packets for retransmission. It returns the number of PSNs that were not scheduled
// before.
func (g *GoBackN) rewind() uint32 {
	lost := g.offset(g.cur)
	g.cur = g.una
	return lost
}

// NextRetransmit implements Recovery.
func (g *GoBackN) NextRetransmit() (psn bth.PSN, ok bool) { return g.cur, g.cur != g.nxt }

// InFlight implements Recovery.
func (g *GoBackN) InFlight() uint32 { return g.offset(g.cur) }

// Deadline implements Recovery. While the oldest packet itself waits for retransmission, because of pacing for example,
// no answer can be missing.
func (g *GoBackN) Deadline() mono.Time { return g.at(g.cur != g.una) }
