package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// Params are the named parameters of a scheme, as the configuration has them.
type Params map[string]float64

// Factory makes a recovery. Unknown or impossible parameters are errors.
type Factory func(Params) (Recovery, error)

// Factories are all loss recovery schemes by name.
var Factories = map[string]Factory{
	"gobackn":   newGoBackN,
	"irn":       newIRN,
	"melo":      newMELO,
	"selective": newSelective,
	"mp-rdma":   newMPRDMA,
	"eunomia":   newEunomia,
}

// psnMask wraps distances that are counted from una: they are never negative,
// so unlike PSN.Diff they cover the whole number space.
const psnMask = 1<<24 - 1

func distance(from, to bth.PSN) uint32 {
	return (to.Uint32() - from.Uint32()) & psnMask
}

// GoBackN is the loss recovery of standard RC (IBTA vol.1 9.7.5.2.8, 9.9.2): from
// the first lost packet on, everything is sent again.
//
//	una <= cur <= nxt
//
// Packets from una to cur are in the network, those from cur to nxt have been
// sent but are to be sent again.
type GoBackN struct {
	una, cur, nxt bth.PSN

	// A responder sends one NAK per gap and then keeps silent until the gap is
	// filled. While una stands where a NAK has put it, further NAKs are copies
	// of that one: the packet has been sent again since and if that was lost as
	// well, only the timeout can tell. nakAt is when that NAK came; Never: none has.
	// Unless the responder repeats NAKs at an interval, which is not standard: see
	// reorder.Strict.
	nakInterval uint32 // ns
	nakAt       mono.Time

	timeout timeout
	base    mono.Time // instant from which the timeout counts
}

// NewGoBackN returns a go-back-N recovery; its timeout is infinite at first.
func NewGoBackN() *GoBackN { return &GoBackN{nakAt: mono.Never} }

// newGoBackN has no timeout of its own unless it is told one.
func newGoBackN(p Params) (Recovery, error) {
	r := param.NewReader("retrans: gobackn", p)
	g := readGoBackN(r)
	return g, r.Err()
}

func readGoBackN(r *param.Reader) *GoBackN {
	return &GoBackN{timeout: readTimeout(r, 0), nakAt: mono.Never,
		nakInterval: uint32(r.Value("nak_interval_us", 0, 0, 4e6) * 1e3)}
}

// Reset implements Recovery.
func (g *GoBackN) Reset(psn bth.PSN) {
	*g = GoBackN{una: psn, cur: psn, nxt: psn, timeout: g.timeout, nakAt: mono.Never, nakInterval: g.nakInterval}
	g.timeout.backoff.progress()
}

// OnSent implements Recovery. The timer starts when something becomes
// outstanding and starts again when the oldest packet is sent again.
func (g *GoBackN) OnSent(now mono.Time, psn bth.PSN, span uint32, _ bool) {
	if psn == g.una {
		g.base = now
	}
	end := psn.Add(int(span))
	sent := distance(g.una, end)
	if sent > distance(g.una, g.nxt) {
		g.nxt = end
	}
	if psn == g.cur || sent > distance(g.una, g.cur) {
		g.cur = end
	}
}

// OnFeedback implements Recovery.
func (g *GoBackN) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := distance(g.una, f.Expected)
	if acked > distance(g.una, g.nxt) {
		return Outcome{}
	}
	if acked > 0 {
		if acked > distance(g.una, g.cur) {
			g.cur = f.Expected
		}
		g.una, g.base, g.nakAt = f.Expected, now, mono.Never
		g.timeout.backoff.progress()
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
	g.timeout.backoff.expired()
	g.nakAt = mono.Never
	return Outcome{Lost: g.rewind()}
}

// rewind makes everything outstanding to be sent again and returns how many
// PSNs that adds to those which were so already.
func (g *GoBackN) rewind() uint32 {
	lost := distance(g.una, g.cur)
	g.cur = g.una
	return lost
}

// NextRetransmit implements Recovery.
func (g *GoBackN) NextRetransmit() (psn bth.PSN, ok bool) { return g.cur, g.cur != g.nxt }

// Una implements Recovery.
func (g *GoBackN) Una() bth.PSN { return g.una }

// InFlight implements Recovery.
func (g *GoBackN) InFlight() uint32 { return distance(g.una, g.cur) }

// SetTimeout implements Recovery.
func (g *GoBackN) SetTimeout(d time.Duration) { g.timeout.ofQueuePair(d) }

// Deadline implements Recovery. While the oldest packet itself waits to be sent
// again, for pacing say, no answer can be missing yet.
func (g *GoBackN) Deadline() mono.Time {
	rto := g.timeout.length()
	if rto == 0 || g.cur == g.una {
		return mono.Never
	}
	return g.base.Add(rto)
}
