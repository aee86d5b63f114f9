package reorder

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// Strict accepts the expected packet only: the receiver of standard RC
// (IBTA vol.1 9.7.4.1.2). Whatever is ahead of a gap is refused and has to be
// sent again.
type Strict struct {
	expected bth.PSN
	gap      bool
	paced    bool
	interval time.Duration
}

// NewStrict returns a strict tracker that expects PSN 0.
func NewStrict() *Strict { return &Strict{} }

// newStrict repeats no NAK unless it is told an interval, and delays none unless it is told so.
func newStrict(p Params) (Tracker, error) {
	r := param.NewReader("reorder: strict", p)
	s := &Strict{interval: time.Duration(r.Value("nak_interval_us", 0, 0, 4e6) * 1e3), paced: r.Bool("nak_paced", false)}
	return s, r.Err()
}

// Reset implements Tracker.
func (s *Strict) Reset(psn bth.PSN) { *s = Strict{expected: psn, interval: s.interval, paced: s.paced} }

// NAKInterval is after what time the NAK of a gap is repeated while packets beyond it
// arrive; zero: never, as the specification has it (IBTA vol.1 9.7.5.2.8). The NICs that the
// authors of DCQCN simulate repeat it every 500 us (QbbNetDevice::ReceiverCheckSeq of their
// ns-3 code), later ones every 4 us, which repairs retransmissions that are lost too.
func (s *Strict) NAKInterval() time.Duration { return s.interval }

// NAKPaced reports whether NAKs of different gaps are not sent closer to each other either. That is not
// standard; the go-back-N that MELO and MP-RDMA are compared with loses as much as if it were so.
func (s *Strict) NAKPaced() bool { return s.paced }

// Classify implements Tracker. What is less than half the number space behind
// is a duplicate (IBTA vol.1 9.7.4.1.1).
func (s *Strict) Classify(psn bth.PSN) Verdict {
	switch d := psn.Diff(s.expected); {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	}
	return Beyond
}

// Receive implements Tracker.
func (s *Strict) Receive(psn bth.PSN, _ bool) (Verdict, uint32) {
	v := s.Classify(psn)
	switch v {
	case InOrder:
		s.expected, s.gap = psn.Next(), false
		return v, 1
	case Beyond:
		s.gap = true
	}
	return v, 0
}

// Skip moves Expected by n PSNs more: a READ request occupies as many as it has
// response packets (IBTA vol.1 9.7.3), of which Receive has counted one. n is less than
// 2^23.
func (s *Strict) Skip(n uint32) { s.expected = s.expected.Add(int(n)) }

// Expected implements Tracker.
func (s *Strict) Expected() bth.PSN { return s.expected }

// Feedback implements Tracker.
func (s *Strict) Feedback(f *Feedback) { f.Expected, f.Gap = s.expected, s.gap }

// Footprint implements Tracker: the 24-bit expected PSN.
func (s *Strict) Footprint() int { return 3 }
