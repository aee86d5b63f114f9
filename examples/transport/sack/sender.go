package sack

import (
	"math/bits"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// sender is the recovery. una <= cur <= end <= nxt: packets from cur to end that have
// not arrived wait for retransmission.
type sender struct {
	una, nxt, cur, end bth.PSN
	high               bth.PSN // behind the highest PSN that is known to have arrived
	arrived            marks   // from una on
	count, waiting     uint32  // packets that have arrived, that wait
	cap, distance      uint32
	rto                time.Duration
	doublings          uint8 // of rto, after timeouts without progress
	base               mono.Time
}

func newSender(r *param.Reader) retrans.Recovery {
	return &sender{
		cap:      uint32(r.Int("window_packets", window, 1, window)),
		distance: uint32(r.Int("distance_packets", 32, 1, window)),
		rto:      r.Micros("rto_us", 320),
	}
}

// Reset implements retrans.Recovery.
func (s *sender) Reset(psn bth.PSN) {
	*s = sender{una: psn, nxt: psn, cur: psn, end: psn, high: psn, cap: s.cap, distance: s.distance, rto: s.rto}
}

// Cap implements retrans.Capped: the receiver tracks window packets.
func (s *sender) Cap() uint32 { return s.cap }

// OnSent implements retrans.Recovery.
func (s *sender) OnSent(now mono.Time, psn bth.PSN, _ uint32, rtx bool) {
	if psn == s.una {
		s.base = now
	}
	switch {
	case !rtx:
		s.nxt = psn.Next()
	case s.waiting > 0 && psn == s.cur:
		s.cur = psn.Next()
		s.waiting--
		s.skip()
	}
}

// OnFeedback implements retrans.Recovery. An acknowledgement that a later one has
// overtaken on another path still tells which packets have arrived.
func (s *sender) OnFeedback(now mono.Time, f *reorder.Feedback) (out retrans.Outcome) {
	if acked := f.Expected.Since(s.una); acked > 0 && acked <= s.nxt.Since(s.una) {
		out.Acked, out.Delivered = acked, s.advance(f.Expected)
		s.base, s.doublings = now, 0
	}
	if !f.HasSACK {
		return out
	}
	if !f.Refused {
		out.Delivered += s.mark(f.SACK)
	}
	for fresh := f.Bitmap &^ s.arrived.before(f.SACK); fresh != 0; fresh &= fresh - 1 {
		out.Delivered += s.mark(f.SACK.Add(bits.TrailingZeros64(fresh) - 64))
	}
	// A packet is lost if one that is distance ahead of it has arrived.
	if ahead := s.high.Since(s.una); ahead > s.distance {
		out.Lost = s.lose(s.una.Add(int(ahead - s.distance)))
	}
	return out
}

// advance moves una, and returns the number of packets that have newly arrived.
func (s *sender) advance(to bth.PSN) (delivered uint32) {
	for ; s.una != to; s.una = s.una.Next() {
		arrived := s.arrived.clear(s.una)
		if arrived {
			s.count--
		} else {
			delivered++
		}
		if s.cur == s.una {
			if s.end == s.una {
				s.end = s.una.Next()
			} else if !arrived {
				s.waiting--
			}
			s.cur = s.una.Next()
		}
	}
	if s.high.Before(s.una) {
		s.high = s.una
	}
	s.skip()
	return delivered
}

// mark records the arrival of psn and returns 1 if it is new.
func (s *sender) mark(psn bth.PSN) uint32 {
	if psn.Since(s.una) >= s.nxt.Since(s.una) || s.arrived.has(psn) {
		return 0
	}
	s.arrived.set(psn)
	s.count++
	if !psn.Before(s.cur) && psn.Before(s.end) {
		s.waiting--
		s.skip()
	}
	if !psn.Before(s.high) {
		s.high = psn.Next()
	}
	return 1
}

// lose lets the packets before to wait for retransmission and returns their number.
func (s *sender) lose(to bth.PSN) (lost uint32) {
	for ; s.end.Before(to); s.end = s.end.Next() {
		if !s.arrived.has(s.end) {
			lost++
		}
	}
	s.waiting += lost
	s.skip()
	return lost
}

// skip moves cur to a packet that waits, or to end.
func (s *sender) skip() {
	for s.cur != s.end && s.arrived.has(s.cur) {
		s.cur = s.cur.Next()
	}
}

// OnRNR implements retrans.Recovery: all packets that have not arrived wait.
func (s *sender) OnRNR(mono.Time) {
	s.cur, s.end, s.waiting = s.una, s.una, 0
	s.lose(s.nxt)
}

// OnTimeout implements retrans.Recovery.
func (s *sender) OnTimeout(now mono.Time) retrans.Outcome {
	before := s.waiting
	s.OnRNR(now)
	s.base, s.doublings = now, min(s.doublings+1, 6)
	return retrans.Outcome{Lost: s.waiting - before}
}

// NextRetransmit implements retrans.Recovery.
func (s *sender) NextRetransmit() (bth.PSN, bool) { return s.cur, s.waiting > 0 }

// Una implements retrans.Recovery.
func (s *sender) Una() bth.PSN { return s.una }

// InFlight implements retrans.Recovery.
func (s *sender) InFlight() uint32 { return s.nxt.Since(s.una) - s.count - s.waiting }

// SetTimeout implements retrans.Recovery: rto_us is the timeout.
func (s *sender) SetTimeout(time.Duration) {}

// Deadline implements retrans.Recovery.
func (s *sender) Deadline() mono.Time {
	if s.una == s.nxt {
		return mono.Never
	}
	return s.base.Add(s.rto << s.doublings)
}
