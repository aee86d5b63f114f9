package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/internal/base/psnring"
	"roced.io/roced/plugin/param"
)

// MELO is the receiver of Lu et al., "Memory Efficient Loss Recovery for Hardware-based Transport in Datacenter",
// APNet 2017, section 3.2. Metadata and data are separate. A bitmap in a bits pool, which all connections of a NIC
// share, records the packets that have arrived. Packets ahead of a gap go into a re-ordering buffer of one BDP in
// host memory, at the slot that their PSN selects; the queue pair owns that buffer.
//
// Only the front and the end of the bitmap are accessible. The tracker drops a packet that needs the middle, and one
// for which the pool has no blocks; as with go-back-N, the sender retransmits it (3.2.3, 3.2.5).
type MELO struct {
	list  bitpool.List // RCV.NXT, RCV.HIGH, start_ptr, end_ptr
	holes holes

	// buffered marks the packets in the re-ordering buffer, which has room for that many. It is in host memory and
	// survives when the bitmap is swapped out.
	buffered psnring.Bits
	packets  int

	latest  latest
	newHole bool // the latest packet has opened a gap
}

// NewMELO returns a tracker whose bits are in pool, with a re-ordering buffer for that many packets.
func NewMELO(pool *bitpool.Pool, packets int) *MELO {
	m := &MELO{list: bitpool.MakeList(pool), buffered: psnring.Make(packets), packets: packets}
	m.list.Swappable()
	return m
}

// shareMELO makes the pool of a NIC, of 1 Kb (section 4). The re-ordering buffer is "a BDP large", 1 MB of packets of 1 KB
// (3.2.4).
func shareMELO(r *param.Reader) func(*param.Reader) Tracker {
	pool := bitpool.Read(r)
	return func(r *param.Reader) Tracker { return NewMELO(pool, r.Int("bdp_packets", 1024, 1, 1<<20)) }
}

// Reset implements Tracker. The connection returns its blocks.
func (m *MELO) Reset(psn bth.PSN) {
	clear(m.buffered)
	*m = MELO{list: m.list, buffered: m.buffered, packets: m.packets}
	m.list.Reset(psn)
}

// Buffered implements Buffered.
func (*MELO) Buffered() {}

// Classify implements Tracker. It swaps the connection in if it has been swapped out; if the pool has no room for that,
// packets ahead of a gap are Beyond.
func (m *MELO) Classify(psn bth.PSN) Verdict {
	d := psn.Diff(m.list.Front())
	switch {
	case d < 0:
		return Duplicate
	case d == 0:
		return InOrder
	case d >= m.packets || !m.swapIn():
		return Beyond
	case psn.After(m.list.High()):
		if m.list.CanExtend(psn) {
			return Held
		}
		return Beyond
	}
	set, ok := m.list.Reach(psn)
	switch {
	case !ok:
		return Beyond
	case set:
		return Duplicate
	}
	return Held
}

// Commit implements Tracker.
func (m *MELO) Commit(psn bth.PSN, v Verdict) {
	m.latest, m.newHole = latest{psn, v}, false
	switch v {
	case InOrder:
		m.advance()
	case Held:
		m.hold(psn)
	}
}

// hold records a packet ahead of a gap.
func (m *MELO) hold(psn bth.PSN) {
	if high := m.list.High(); !psn.After(high) {
		m.list.Set(psn)
		m.holes.fill(psn)
	} else if m.list.Extend(psn); psn != high.Next() {
		m.holes.insert(0, bth.Hole{Start: high.Next(), Len: uint32(psn.Diff(high) - 1)})
		m.newHole = true
	}
	m.buffered.Set(psn)
}

// advance moves RCV.NXT past the packet in order and past those in the buffer.
func (m *MELO) advance() {
	for {
		if m.list.Empty() {
			m.list.Skip()
		} else {
			m.list.Pop()
		}
		next := m.list.Front()
		if !m.buffered.Has(next) {
			break
		}
		m.buffered.Clear(next)
	}
	m.holes.cut(m.list.Front())
}

// swapIn takes blocks for the bitmap if it has been swapped out; the buffer knows which packets have arrived. It
// returns false if the pool has too few blocks (3.2.5).
func (m *MELO) swapIn() bool {
	if !m.list.Swapped() {
		return true
	}
	next, last := m.list.Front(), m.packets-1
	for last > 0 && !m.buffered.Has(next.Add(last)) {
		last--
	}
	if last > 0 && !m.list.CanExtend(next.Add(last)) {
		return false
	}
	m.list.SwapIn()
	for i := 1; i <= last; i++ {
		if m.buffered.Has(next.Add(i)) {
			m.list.Extend(next.Add(i))
		}
	}
	return true
}

// Expected implements Tracker: RCV.NXT.
func (m *MELO) Expected() bth.PSN { return m.list.Front() }

// Feedback implements Tracker: a NACK with the most recent holes if a new one has formed (3.2.4).
func (m *MELO) Feedback(f *Feedback) {
	f.Expected = m.list.Front()
	if m.latest.sack(f) && m.newHole {
		f.Gap, f.Holes, f.NumHoles = true, m.holes.h, m.holes.n
	}
}

// Footprint implements Tracker: 12 bytes of holes, 6 of RCV.NXT and RCV.HIGH, 2 of start_ptr and end_ptr (3.2.4), and
// the blocks that the connection holds now, with their pointers and array entries.
func (m *MELO) Footprint() int {
	pool := m.list.Pool()
	return 12 + 6 + 2 + m.list.Blocks()*pool.Footprint()/pool.Blocks()
}

// holes are the most recent gaps, "holes closest to RCV.HIGH", updated with each packet so that no search is needed
// (3.2.4).
type holes struct {
	h [bth.MaxHoles]bth.Hole
	n uint8
}

// insert makes x hole number i, counted from the most recent one, and forgets the oldest if there are too many.
func (s *holes) insert(i int, x bth.Hole) {
	if i >= len(s.h) {
		return
	}
	copy(s.h[i+1:], s.h[i:])
	s.h[i] = x
	s.n = min(s.n+1, bth.MaxHoles)
}

func (s *holes) remove(i int) {
	copy(s.h[i:], s.h[i+1:])
	s.n--
	s.h[s.n] = bth.Hole{}
}

// fill removes psn from its hole.
func (s *holes) fill(psn bth.PSN) {
	for i := range int(s.n) {
		x := s.h[i]
		d := psn.Diff(x.Start)
		if d < 0 || uint32(d) >= x.Len {
			continue
		}
		before, behind := bth.Hole{Start: x.Start, Len: uint32(d)}, bth.Hole{Start: psn.Next(), Len: x.Len - uint32(d) - 1}
		switch {
		case before.Len == 0 && behind.Len == 0:
			s.remove(i)
		case behind.Len == 0:
			s.h[i] = before
		default:
			s.h[i] = behind
			if before.Len > 0 {
				s.insert(i+1, before)
			}
		}
		return
	}
}

// cut removes the PSNs before nxt, all of which have arrived.
func (s *holes) cut(nxt bth.PSN) {
	for s.n > 0 {
		x := &s.h[s.n-1]
		d := nxt.Diff(x.Start)
		switch {
		case d <= 0:
			return
		case uint32(d) < x.Len:
			*x = bth.Hole{Start: nxt, Len: x.Len - uint32(d)}
			return
		}
		s.remove(int(s.n) - 1)
	}
}
