package reorder

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// Strict is the receiver of standard RC (IBTA vol.1 9.7.4.1.2): it accepts the expected packet only and drops packets
// ahead of a gap, which the sender must retransmit. The zero value is a tracker without options that expects PSN 0.
type Strict struct {
	expected bth.PSN
	gap      bool
	paced    bool
	interval time.Duration
}

// NewStrict returns a strict tracker without options that expects PSN 0.
func NewStrict() *Strict { return &Strict{} }

// newStrict neither repeats nor delays NAKs by default.
func newStrict(r *param.Reader) Tracker {
	return &Strict{interval: time.Duration(r.Value("nak_interval_us", 0, 0, 4e6) * 1e3), paced: r.Bool("nak_paced", false)}
}

// Reset implements Tracker.
func (s *Strict) Reset(psn bth.PSN) { s.expected, s.gap = psn, false }

// NAKInterval returns the time after which the responder repeats the NAK of a gap while packets beyond it arrive.
// Zero means never, as the specification demands (IBTA vol.1 9.7.5.2.8). The NICs that the authors of DCQCN simulate
// repeat it every 500 us (QbbNetDevice::ReceiverCheckSeq of their ns-3 code), later ones every 4 us, which also
// repairs lost retransmissions.
func (s *Strict) NAKInterval() time.Duration { return s.interval }

// NAKPaced reports whether NAKInterval also separates the NAKs of different gaps. This is not standard; the go-back-N
// that MELO and MP-RDMA are compared with loses as much as if it were so.
func (s *Strict) NAKPaced() bool { return s.paced }

// Classify implements Tracker. A PSN that is less than half of the PSN space behind is a duplicate (IBTA vol.1
// 9.7.4.1.1).
func (s *Strict) Classify(psn bth.PSN) Verdict {
	switch d := psn.Diff(s.expected); {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	}
	return Beyond
}

// Commit implements Tracker.
func (s *Strict) Commit(_ bth.PSN, v Verdict) {
	switch v {
	case InOrder:
		s.Advance(1)
	case Beyond:
		s.gap = true
	}
}

// Advance commits the expected packet, which occupies span PSNs, less than 2^23: a READ request occupies as many as
// it has response packets (IBTA vol.1 9.7.3).
func (s *Strict) Advance(span uint32) { s.expected, s.gap = s.expected.Add(int(span)), false }

// Expected implements Tracker.
func (s *Strict) Expected() bth.PSN { return s.expected }

// Feedback implements Tracker.
func (s *Strict) Feedback(f *Feedback) { f.Expected, f.Gap = s.expected, s.gap }

// Footprint implements Tracker: the 24-bit expected PSN.
func (s *Strict) Footprint() int { return 3 }
