package flow

import "roced.io/roced/bth"

// window is the number of PSNs that a sequence remembers. It is a power of two.
const window = 4096

// maxSpan is the maximum number of PSNs of a message (IBTA vol.1 9.7.7: half of all PSNs).
const maxSpan = 1<<23 - 1

// sighting classifies a packet of a sequence.
type sighting uint8

const (
	fresh     sighting = iota // ahead of all others
	again                     // PSN seen before
	duplicate                 // exact copy, made by the network
	late                      // out of order, first sighting
)

// sequence tracks the PSNs of one sender in one role: requests or READ responses.
//
// A late packet is either reordered, or the retransmission of a packet that was lost before the observation point. The
// next packets show the difference. A go-back-N sender continues with packets that the sequence has seen. After a
// reordered original, the sender retransmits that same packet or nothing. If it does, incrementing IP IDs help.
type sequence struct {
	started     bool
	first, high bth.PSN
	seen        [window / 64]uint64 // PSNs up to high
	holes       [window / 64]uint64 // missing PSNs in gaps
	run         lateRun
	nak         bth.PSN // PSN that the receiver requests
	hasNAK      bool
	highID      uint16 // IP ID of the packet with PSN high
	c           SequenceCounts
}

// lateRun is a run of consecutive late packets that is not yet classified.
type lateRun struct {
	start  bth.PSN
	n      int
	resent bool // IP IDs show a later transmission than the packets before
}

// SequenceCounts counts the packets of a sequence by their history.
type SequenceCounts struct {
	// Retransmitted counts retransmissions, whether or not the originals passed the observation point.
	Retransmitted uint64 `json:"retransmitted"`
	// Recovered counts the retransmissions whose originals were lost before the observation point.
	Recovered uint64 `json:"recovered"`
	// Reordered counts packets that others overtook.
	Reordered uint64 `json:"reordered"`
	// Duplicated counts packets with the same PSN and IP ID as an earlier one: the network duplicated them.
	Duplicated uint64 `json:"duplicated"`
	// Gaps counts jumps over PSNs. Lost counts PSNs that arrived late or never. Missing counts PSNs that have not
	// arrived yet.
	Gaps    uint64 `json:"gaps"`
	Lost    uint64 `json:"lost"`
	Missing uint64 `json:"missing"`
	// Restarts counts PSN jumps that are too large for one sequence.
	Restarts uint64 `json:"restarts,omitempty"`
	// OutOfOrder is the distribution of the out-of-order degree: the distance of a late packet from the highest PSN
	// seen.
	OutOfOrder Degree `json:"out_of_order"`
}

// Degree is a distribution of out-of-order degrees in PSNs.
type Degree struct {
	Max uint32 `json:"max"`
	// Counts[i] counts degrees from 2^i to 2^(i+1)-1.
	Counts [12]uint32 `json:"counts"`
}

func (d *Degree) add(n int) {
	d.Max = max(d.Max, uint32(n))
	i := 0
	for n > 1 && i < len(d.Counts)-1 {
		n, i = n/2, i+1
	}
	d.Counts[i]++
}

func bit(p bth.PSN) (word int, mask uint64) {
	i := p.Uint32() % window
	return int(i / 64), 1 << (i % 64)
}

// has reports whether p is in the window and was seen.
func (s *sequence) has(p bth.PSN) bool {
	w, m := bit(p)
	d := s.high.Diff(p)
	return s.started && d >= 0 && d < window && s.seen[w]&m != 0
}

// reaches reports whether p is in the window or the next PSN.
func (s *sequence) reaches(p bth.PSN) bool {
	d := s.high.Next().Diff(p)
	return s.started && d >= 0 && d < window
}

// observe records a packet and classifies it. id is its IP ID; 0 means none. With goesOn, a jump to p is a gap;
// without it, any PSN may follow.
func (s *sequence) observe(p bth.PSN, id uint16, goesOn bool) sighting {
	if d := s.high.Diff(p); !s.started || d >= window || d <= -window {
		s.restart(p)
		s.highID = id
		return fresh
	}
	switch {
	case p.After(s.high):
		s.settle()
		s.skip(p, goesOn)
		s.advance(p)
		s.highID = id
		return fresh
	case s.has(p):
		s.settleBy(p)
		s.c.Retransmitted++
		return again
	}
	s.fill(p, id)
	return late
}

// restart restarts the sequence at p. It is unknown whether earlier packets passed, so they count as late if they
// arrive.
func (s *sequence) restart(p bth.PSN) {
	s.settle()
	if s.started {
		s.c.Restarts++
	} else {
		s.first = p
	}
	s.started, s.hasNAK = true, false
	s.seen, s.holes = [window / 64]uint64{}, [window / 64]uint64{}
	s.advance(p)
}

// skip marks the PSNs between high and p as not seen.
func (s *sequence) skip(p bth.PSN, gap bool) {
	n := p.Diff(s.high) - 1
	if gap && n > 0 {
		s.c.Gaps++
		s.c.Lost += uint64(n)
		s.c.Missing += uint64(n)
	}
	for q := s.high.Next(); q != p; q = q.Next() {
		w, m := bit(q)
		s.seen[w] &^= m
		s.holes[w] &^= m
		if gap {
			s.holes[w] |= m
		}
	}
}

// advance moves high to p, which is ahead of it.
func (s *sequence) advance(p bth.PSN) {
	w, m := bit(p)
	s.seen[w] |= m
	s.holes[w] &^= m
	s.high = p
}

// fill records the late packet p.
func (s *sequence) fill(p bth.PSN, id uint16) {
	w, m := bit(p)
	s.seen[w] |= m
	if s.holes[w]&m != 0 {
		s.holes[w] &^= m
		s.c.Missing--
	} else {
		s.c.Lost++ // its absence was not known as a gap
	}
	s.c.OutOfOrder.add(s.high.Diff(p))
	if s.run.n > 0 && p == s.run.start.Add(s.run.n) {
		s.run.n++
		return
	}
	s.settle()
	later := int16(id - s.highID)
	s.run = lateRun{start: p, n: 1, resent: id != 0 && s.highID != 0 && later > 0 && later < window}
}

// settleBy classifies the late run with the help of the next packet p, which was seen before.
func (s *sequence) settleBy(p bth.PSN) {
	switch d := p.Diff(s.run.start); {
	case d >= s.run.n:
		s.recovered() // the sender has gone back and continues
	case d >= 0 && !s.run.resent:
		s.reordered()
	default:
		s.settle()
	}
}

// settle classifies the late run without the help of the next packet.
func (s *sequence) settle() {
	if s.run.n == 0 {
		return
	}
	if s.wanted() {
		s.recovered()
	} else {
		s.reordered()
	}
}

// wanted reports whether the late run is a retransmission, according to its IP IDs or to a NAK for one of its
// packets.
func (s *sequence) wanted() bool {
	d := s.nak.Diff(s.run.start)
	return s.run.resent || s.hasNAK && d >= 0 && d < s.run.n
}

func (s *sequence) recovered() {
	s.c.Recovered += uint64(s.run.n)
	s.c.Retransmitted += uint64(s.run.n)
	s.run.n = 0
}

func (s *sequence) reordered() {
	s.c.Reordered += uint64(s.run.n)
	s.run.n = 0
}

// declared counts a late packet whose header marks it as a retransmission.
func (s *sequence) declared() {
	if s.run.n > 0 {
		s.run.n--
		s.c.Recovered++
		s.c.Retransmitted++
	}
}

// naked records that the receiver requests p.
func (s *sequence) naked(p bth.PSN) { s.nak, s.hasNAK = p, true }

// counts returns the counters, with the current late run classified.
func (s *sequence) counts() SequenceCounts {
	c := s.c
	n := uint64(s.run.n)
	if s.run.n > 0 && s.wanted() {
		c.Recovered += n
		c.Retransmitted += n
	} else {
		c.Reordered += n
	}
	return c
}

// span marks the n PSNs from p on as seen; p is in the window. They belong to the responses to a READ request, so
// they are not lost.
func (s *sequence) span(p bth.PSN, n int) {
	n = min(n, maxSpan)
	if n > window { // more than the window holds
		p, n = p.Add(n-window), window
		if p.After(s.high) {
			s.high = p
		}
	}
	for q := p.Next(); n > 1; n, q = n-1, q.Next() {
		w, m := bit(q)
		if q.After(s.high) {
			s.advance(q)
		} else if s.high.Diff(q) < window {
			if s.holes[w]&m != 0 {
				s.holes[w] &^= m
				s.c.Lost--
				s.c.Missing--
			}
			s.seen[w] |= m
		}
	}
}
