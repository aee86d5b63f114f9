package retrans

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// Selective is the selective repeat of NICs below an ordering layer (Eunomia 3.2.2). Packets can be marked as received.
// After a loss it retransmits the packets without a mark. It does not infer losses from the marks.
//
//	una <= cur <= end <= nxt
//
// Packets between cur and end without a mark wait for retransmission.
type Selective struct {
	marked
	timeout
	cur, end bth.PSN
	high     bth.PSN // behind the highest mark; una if there is none
	waiting  uint32  // packets from cur to end without a mark
	nakSeen  bool    // as for GoBackN: only the first NAK of a loss counts
	probing  bool    // a timeout without marks has retransmitted una only
	probed   bth.PSN // if probing: nxt at that timeout

	probe bool // a timeout without marks probes
}

// NewSelective returns a selective repeat that remembers marks of window packets from the oldest outstanding one on.
// It rounds window up to a power of two of at least 64.
func NewSelective(window int) *Selective {
	return &Selective{marked: makeMarked(window), probe: true}
}

func newSelective(r *param.Reader) Recovery {
	s := readSelective(r)
	s.timeout = readTimeout(r, 0)
	return s
}

// readSelective reads the parameters that also apply below Eunomia: the number of packets that can be marked, and
// whether timeouts probe.
func readSelective(r *param.Reader) *Selective {
	s := NewSelective(r.Int("window_packets", 1024, 64, 1<<16))
	s.probe = r.Bool("probe", true)
	return s
}

// Reset implements Recovery.
func (s *Selective) Reset(psn bth.PSN) {
	s.reset(psn)
	*s = Selective{marked: s.marked, cur: psn, end: psn, high: psn, probe: s.probe, timeout: s.timeout}
	s.restart(0)
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

// Mark implements Marker. It ignores PSNs that are not outstanding or too far ahead to be remembered; their packets may
// be retransmitted unnecessarily.
func (s *Selective) Mark(psn bth.PSN) bool {
	if !s.isOutstanding(psn) || !s.mark(psn) {
		return false
	}
	d := s.offset(psn)
	if d >= s.offset(s.cur) && d < s.offset(s.end) {
		s.waiting--
	}
	if d >= s.offset(s.high) {
		s.high = psn.Next()
	}
	s.skip()
	return true
}

// OnFeedback implements Recovery.
func (s *Selective) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := s.offset(f.Expected)
	if acked > s.outstanding() {
		return Outcome{}
	}
	out := Outcome{Acked: acked}
	if acked > 0 {
		out.Delivered = s.advance(f.Expected, &s.cur, &s.end, &s.high)
		s.skip()
		if s.waiting > 0 {
			s.waiting = s.unmarked(s.cur, s.end)
		}
		s.nakSeen = false
		s.restart(now)
	}
	if acked > 0 && s.probing {
		if s.probing = false; acked == 1 {
			out.Lost = s.repeat(s.lostUntil(s.probed))
		}
	}
	if (f.Gap || f.Refused) && !s.nakSeen && s.una != s.nxt {
		lost := s.repeat(s.nxt)
		s.nakSeen, out.Lost = lost > 0, out.Lost+lost
	}
	return out
}

// OnRNR implements Recovery. The receiver has dropped all packets that need receives, and reports the first one only.
func (s *Selective) OnRNR(mono.Time) {
	s.nakSeen, s.probing = false, false
	s.repeat(s.nxt)
}

// OnTimeout implements Recovery. Packets behind the highest mark may still be in the network, so with a mark only the
// packets before it are retransmitted. Without a mark only the oldest packet is. Its answer shows whether the timer was
// early: an acknowledgement of that packet alone means that the others are lost too (as F-RTO, RFC 5682 2.1). Without
// probing, all packets without a mark are retransmitted. A timeout is a new loss: the next NAK counts. All packets may
// have marks; a peer that does not advance then gets another timeout.
func (s *Selective) OnTimeout(now mono.Time) Outcome {
	s.backoff.expired()
	s.nakSeen, s.base = false, now
	switch {
	case s.una == s.nxt:
		return Outcome{}
	case !s.probe:
		return Outcome{Lost: s.repeat(s.nxt)}
	case s.high == s.una:
		s.probing, s.probed = true, s.nxt
	}
	return Outcome{Lost: s.repeat(s.lostUntil(s.una.Next()))}
}

// lostUntil returns the end of the packets that count as lost without a mark: the highest mark, or end if there is none.
func (s *Selective) lostUntil(end bth.PSN) bth.PSN {
	if s.high != s.una {
		return s.high
	}
	return end
}

// repeat schedules all packets without a mark before end for retransmission. It returns the number of PSNs that were not
// scheduled before.
func (s *Selective) repeat(end bth.PSN) uint32 {
	before := s.waiting
	if s.cur == s.end || s.offset(s.end) < s.offset(end) {
		s.end = end
	}
	s.cur = s.una
	s.skip()
	s.waiting = s.unmarked(s.cur, s.end)
	return s.waiting - before
}

// skip moves cur past marked packets.
func (s *Selective) skip() {
	for s.cur != s.end && s.has(s.cur) {
		s.cur = s.cur.Next()
	}
}

// NextRetransmit implements Recovery.
func (s *Selective) NextRetransmit() (psn bth.PSN, ok bool) { return s.cur, s.cur != s.end }

// InFlight implements Recovery: packets that neither have a mark nor wait for retransmission.
func (s *Selective) InFlight() uint32 { return s.outstanding() - s.set - s.waiting }

// Deadline implements Recovery. While the oldest packet itself waits for retransmission, no answer can be missing.
func (s *Selective) Deadline() mono.Time {
	return s.at(s.una != s.nxt && (s.cur != s.una || s.cur == s.end))
}

// Footprint returns the number of bytes of state that go-back-N does not have: the marks and the end of the
// retransmission.
func (s *Selective) Footprint() int { return int(s.marks.Len()/8) + 3 }
