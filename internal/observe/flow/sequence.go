package flow

import "roced.io/roced/bth"

// window is how many PSNs a sequence remembers. It is a power of two.
const window = 4096

// maxSpan is how many PSNs a message can take (IBTA vol.1 9.7.7: half of them).
const maxSpan = 1<<23 - 1

// sighting is what a packet is to its sequence.
type sighting uint8

const (
	fresh     sighting = iota // ahead of all others
	again                     // its PSN has been seen here
	duplicate                 // the very same packet once more: the network made it
	late                      // behind others, and seen here for the first time
)

// sequence follows the PSNs of one sender in one role, requests or READ responses.
//
// A packet that comes late was overtaken, or is the retransmission of one that was lost
// before it came here. Which of them shows with what comes next: a sender that goes back
// goes on with packets that were seen; an original that was overtaken will itself be
// seen again, or nothing is. IP IDs that count up help when it is seen again.
type sequence struct {
	started     bool
	first, high bth.PSN
	seen        [window / 64]uint64 // of the PSNs up to high
	holes       [window / 64]uint64 // those that were missed
	run         lateRun
	nak         bth.PSN // that the receiver asked for
	hasNAK      bool
	recent      [16]packetID
	turn        uint8
	highID      uint16 // IP ID of the packet that is ahead
	c           SequenceCounts
}

// packetID tells a packet that the network has duplicated from one sent again.
type packetID struct {
	psn bth.PSN
	id  uint16
}

// lateRun are consecutive late packets that are not yet told apart.
type lateRun struct {
	start  bth.PSN
	n      int
	resent bool // their IP IDs say that they were sent later than what came before
}

// SequenceCounts tells what has become of the packets of a sequence.
type SequenceCounts struct {
	// Retransmitted packets were sent again by their sender, whether the ones before
	// were seen here or not.
	Retransmitted uint64 `json:"retransmitted"`
	// Recovered is the part of them whose packets before were lost on the way here.
	Recovered uint64 `json:"recovered"`
	// Reordered packets were overtaken.
	Reordered uint64 `json:"reordered"`
	// Duplicated packets came twice with one IP ID: the network doubled them.
	Duplicated uint64 `json:"duplicated"`
	// Gaps is how often PSNs were skipped, Lost how many came late or never, Missing how
	// many are not here yet.
	Gaps    uint64 `json:"gaps"`
	Lost    uint64 `json:"lost"`
	Missing uint64 `json:"missing"`
	// Restarts is how often the PSNs jumped too far to be one sequence.
	Restarts uint64 `json:"restarts,omitempty"`
	// OutOfOrder is the degree by which packets came late: how many PSNs ahead of them
	// had been seen.
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

// reaches reports whether p is in the window or the next one ahead.
func (s *sequence) reaches(p bth.PSN) bool {
	d := s.high.Next().Diff(p)
	return s.started && d >= 0 && d < window
}

// observe notes a packet with IP ID id, 0 for none, and says what it is. A jump from a
// packet that goes on is a gap; others may be followed by any PSN.
func (s *sequence) observe(p bth.PSN, id uint16, goesOn bool) sighting {
	if d := s.high.Diff(p); !s.started || d >= window || d <= -window {
		s.restart(p)
		s.highID = id
		s.remember(p, id)
		return fresh
	}
	defer s.remember(p, id)
	switch {
	case p.After(s.high):
		s.settle()
		s.skip(p, goesOn)
		s.advance(p)
		s.highID = id
		return fresh
	case s.has(p):
		if s.doubled(p, id) {
			s.c.Duplicated++
			return duplicate
		}
		s.settleBy(p)
		s.c.Retransmitted++
		return again
	}
	s.fill(p, id)
	return late
}

// restart begins anew at p. Whether packets before it have passed is not known; those
// that come yet are late.
func (s *sequence) restart(p bth.PSN) {
	s.settle()
	if s.started {
		s.c.Restarts++
	} else {
		s.first = p
	}
	s.started, s.hasNAK, s.recent = true, false, [16]packetID{}
	s.seen, s.holes = [window / 64]uint64{}, [window / 64]uint64{}
	s.advance(p)
}

// skip notes the PSNs between high and p as not seen.
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

// advance moves high to p, which is ahead of it; all up to p is seen.
func (s *sequence) advance(p bth.PSN) {
	w, m := bit(p)
	s.seen[w] |= m
	s.holes[w] &^= m
	s.high = p
}

// fill notes the late packet p.
func (s *sequence) fill(p bth.PSN, id uint16) {
	w, m := bit(p)
	s.seen[w] |= m
	if s.holes[w]&m != 0 {
		s.holes[w] &^= m
		s.c.Missing--
	} else {
		s.c.Lost++ // nobody could know that it was due
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

// settleBy decides on the late run by p, which has been seen before.
func (s *sequence) settleBy(p bth.PSN) {
	switch d := p.Diff(s.run.start); {
	case d >= s.run.n:
		s.recovered() // the sender has gone back and goes on
	case d >= 0 && !s.run.resent:
		s.reordered()
	default:
		s.settle()
	}
}

// settle decides on the late run when what comes next tells nothing.
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

// wanted reports whether the late run was sent again, as its IP IDs say, or a NAK that
// names a packet of it.
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

// declared settles a late packet whose header says that it is a retransmission.
func (s *sequence) declared() {
	if s.run.n > 0 {
		s.run.n--
		s.c.Recovered++
		s.c.Retransmitted++
	}
}

// naked notes that the receiver asks for p.
func (s *sequence) naked(p bth.PSN) { s.nak, s.hasNAK = p, true }

// doubled reports whether one of the last packets had the same PSN and IP ID.
func (s *sequence) doubled(p bth.PSN, id uint16) bool {
	if id == 0 {
		return false
	}
	for _, r := range s.recent {
		if r == (packetID{p, id}) {
			return true
		}
	}
	return false
}

func (s *sequence) remember(p bth.PSN, id uint16) {
	s.recent[s.turn%uint8(len(s.recent))] = packetID{p, id}
	s.turn++
}

// counts returns the counters as they would be if nothing more came.
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

// span lets the n PSNs from p on, which is in the window, be seen: those of the
// responses to a READ request. They were not lost.
func (s *sequence) span(p bth.PSN, n int) {
	n = min(n, maxSpan)
	if n > window { // too many to remember
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
