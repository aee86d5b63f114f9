package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/psnring"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// Selective is the selective repeat of NICs that an ordering layer is put above
// (Eunomia 3.2.2): packets can be marked as received, and after a loss those are sent
// again that are not. Which packets were lost it does not guess from the marks.
//
//	una <= cur <= end <= nxt
//
// What lies between cur and end without a mark waits to be sent again.
type Selective struct {
	una, cur, end, nxt bth.PSN
	high               bth.PSN // behind the highest mark; una if there is none
	marks              psnring.Bits
	marked             uint32  // marks that are set
	waiting            uint32  // packets from cur to end that have none
	nakSeen            bool    // as for GoBackN: a loss is answered once
	probing            bool    // a timeout without a mark has sent una again
	probed             bth.PSN // ... the packets before this one were outstanding then

	probe   bool // a timeout without a mark probes
	timeout timeout
	base    mono.Time // instant from which the timeout counts
}

// Marker is a Recovery that single packets can be marked in as received.
type Marker interface {
	// Mark returns whether that is news.
	Mark(psn bth.PSN) bool
}

// NewSelective returns a selective repeat that remembers marks of window packets from the oldest outstanding one on.
// It rounds window up to a power of two of at least 64.
func NewSelective(window int) *Selective {
	return &Selective{marks: psnring.Make(window), probe: true}
}

func newSelective(p Params) (Recovery, error) {
	r := param.NewReader("retrans: selective", p)
	s := readSelective(r)
	s.timeout = readTimeout(r, 0)
	return s, r.Err()
}

// readSelective reads what it also is told below Eunomia: how many packets can be marked,
// which is rounded up to a power of two, and whether timeouts probe.
func readSelective(r *param.Reader) *Selective {
	s := NewSelective(r.Int("window_packets", 1024, 64, 1<<16))
	s.probe = r.Bool("probe", true)
	return s
}

// Reset implements Recovery.
func (s *Selective) Reset(psn bth.PSN) {
	clear(s.marks)
	*s = Selective{una: psn, cur: psn, end: psn, nxt: psn, high: psn, marks: s.marks, probe: s.probe, timeout: s.timeout}
	s.timeout.backoff.progress()
}

// OnSent implements Recovery.
func (s *Selective) OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool) {
	if psn == s.una {
		s.base = now
	}
	end := psn.Add(int(span))
	switch {
	case rtx && s.cur != s.end && psn == s.cur:
		s.waiting -= s.unmarked(psn, end)
		s.cur = end
		s.skip()
	case rtx:
	case s.cur != s.end:
		s.nxt = end
	default:
		s.cur, s.end, s.nxt = end, end, end
	}
}

// Mark implements Marker. PSNs that are not outstanding, or too far ahead to be
// remembered, are ignored: they may be sent again in vain.
func (s *Selective) Mark(psn bth.PSN) bool {
	d := distance(s.una, psn)
	if d >= distance(s.una, s.nxt) || d >= s.marks.Len() || s.marks.Has(psn) {
		return false
	}
	s.marks.Set(psn)
	s.marked++
	if d >= distance(s.una, s.cur) && d < distance(s.una, s.end) {
		s.waiting--
	}
	if d >= distance(s.una, s.high) {
		s.high = psn.Next()
	}
	s.skip()
	return true
}

// OnFeedback implements Recovery.
func (s *Selective) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := distance(s.una, f.Expected)
	if acked > distance(s.una, s.nxt) {
		return Outcome{}
	}
	out := Outcome{Acked: acked}
	if acked > 0 {
		out.Delivered = s.unmarked(s.una, f.Expected)
		s.marked -= acked - out.Delivered
		s.advance(f.Expected, acked)
		s.base, s.nakSeen = now, false
		s.timeout.backoff.progress()
	}
	if acked > 0 && s.probing {
		if s.probing = false; acked == 1 {
			out.Lost = s.repeat(s.evident(s.probed))
		}
	}
	if (f.Gap || f.Refused) && !s.nakSeen && s.una != s.nxt {
		lost := s.repeat(s.nxt)
		s.nakSeen, out.Lost = lost > 0, out.Lost+lost
	}
	return out
}

// advance moves una.
func (s *Selective) advance(to bth.PSN, acked uint32) {
	for k := range min(acked, s.marks.Len()) {
		s.marks.Clear(s.una.Add(int(k)))
	}
	left := distance(to, s.nxt)
	s.una = to
	if distance(to, s.cur) > left {
		s.cur = to
	}
	if distance(to, s.end) > left {
		s.end = to
	}
	if distance(to, s.high) > left {
		s.high = to
	}
	s.skip()
	if s.waiting > 0 {
		s.waiting = s.unmarked(s.cur, s.end)
	}
}

// OnRNR implements Recovery: the receiver has dropped what it needs receives for, and
// says so of the first of these packets only.
func (s *Selective) OnRNR(mono.Time) {
	s.nakSeen, s.probing = false, false
	s.repeat(s.nxt)
}

// OnTimeout implements Recovery. Packets behind the highest mark may still be under way:
// if there is a mark, only those before it are sent again. If there is none, the oldest
// packet alone is, and the answer tells whether the timer was early: an acknowledgement of
// that packet and no other means that the rest is lost too (as F-RTO, RFC 5682 2.1). Without
// probing all is sent again that has no mark. A timeout is a new loss: the next NAK counts.
// Nothing may be left without a mark: a peer that does not advance all the same is waited for
// once more.
func (s *Selective) OnTimeout(now mono.Time) Outcome {
	s.timeout.backoff.expired()
	s.nakSeen, s.base = false, now
	switch {
	case s.una == s.nxt:
		return Outcome{}
	case !s.probe:
		return Outcome{Lost: s.repeat(s.nxt)}
	case s.high == s.una:
		s.probing, s.probed = true, s.nxt
	}
	return Outcome{Lost: s.repeat(s.evident(s.una.Next()))}
}

// evident returns the end of what counts as lost if it has no mark: the highest mark, or
// end if there is none.
func (s *Selective) evident(end bth.PSN) bth.PSN {
	if s.high != s.una {
		return s.high
	}
	return end
}

// repeat makes all before end that is not marked to be sent again, besides what is so
// already, and returns how many PSNs that adds.
func (s *Selective) repeat(end bth.PSN) uint32 {
	before := s.waiting
	if s.cur == s.end || distance(s.una, s.end) < distance(s.una, end) {
		s.end = end
	}
	s.cur = s.una
	s.skip()
	s.waiting = s.unmarked(s.cur, s.end)
	return s.waiting - before
}

// skip moves cur past marked packets.
func (s *Selective) skip() {
	for s.cur != s.end && s.hasMark(s.cur) {
		s.cur = s.cur.Next()
	}
}

func (s *Selective) hasMark(psn bth.PSN) bool {
	return distance(s.una, psn) < s.marks.Len() && s.marks.Has(psn)
}

// NextRetransmit implements Recovery.
func (s *Selective) NextRetransmit() (psn bth.PSN, ok bool) { return s.cur, s.cur != s.end }

// Una implements Recovery.
func (s *Selective) Una() bth.PSN { return s.una }

// InFlight implements Recovery: what is neither marked nor waits to be sent again.
func (s *Selective) InFlight() uint32 {
	return distance(s.una, s.nxt) - s.marked - s.waiting
}

// unmarked counts the packets from one PSN to another that have no mark.
func (s *Selective) unmarked(from, to bth.PSN) uint32 {
	n := distance(from, to)
	seen := min(n, s.marks.Len()-min(s.marks.Len(), distance(s.una, from)))
	return n - s.marks.Count(from, seen)
}

// SetTimeout implements Recovery.
func (s *Selective) SetTimeout(d time.Duration) { s.timeout.ofQueuePair(d) }

// Deadline implements Recovery. While the oldest packet itself waits to be sent
// again no answer can be missing yet.
func (s *Selective) Deadline() mono.Time {
	rto := s.timeout.length()
	if rto == 0 || s.una == s.nxt || s.cur == s.una && s.cur != s.end {
		return mono.Never
	}
	return s.base.Add(rto)
}

// Footprint is the number of bytes of state that go-back-N does not have: the marks
// and where the retransmission ends.
func (s *Selective) Footprint() int { return int(s.marks.Len()/8) + 3 }
