package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/param"
)

// MELO is the receiver of Lu et al., "Memory Efficient Loss Recovery for Hardware-based
// Transport in Datacenter", APNet 2017, section 3.2. Metadata and data are separate: a
// bitmap in a bits pool that all connections share says which packets have arrived, and
// what comes ahead of a gap goes into a re-ordering buffer of one BDP in the memory of
// the host, at the slot that its PSN names, with what has to be done when its turn
// comes.
//
// Only the front and the end of the bitmap can be reached. A packet that needs its
// middle is refused, and so is one for which the pool has no blocks: as with go-back-N,
// it comes again (3.2.3, 3.2.5).
type MELO struct {
	list     bitpool.List // RCV.NXT, RCV.HIGH, start_ptr, end_ptr
	holes    holes
	released released

	// What the re-ordering buffer has in each slot, in the host's memory; head is the slot
	// of RCV.NXT, which is empty, and filled how many are not.
	buffer []slot
	head   int
	filled int

	report report
	psn    bth.PSN // of the packet that was received last

	// What Classify has said Beyond of last. Looking for room can swap others out, so there may
	// be some when it is looked for again: but the packet has been dropped by then.
	beyond bth.PSN
	judged bool
}

// report is what is said of a packet.
type report uint8

const (
	reportACK     report = iota // in order, or a duplicate
	reportSACK                  // ahead of a gap that is known
	reportNACK                  // ... that is new (3.2.4)
	reportRefused               // dropped
)

// Buffered is a Tracker under which packets that are Held go into a re-ordering buffer, which
// the queue pair has, and on to the application in order.
type Buffered interface {
	Tracker
	// Buffered marks it.
	Buffered()
}

// NewMELO returns a tracker with a re-ordering buffer of that many packets; its bits are in
// pool.
func NewMELO(pool *bitpool.Pool, packets int) *MELO {
	m := &MELO{list: bitpool.MakeList(pool), buffer: make([]slot, packets)}
	m.list.Swappable()
	return m
}

// newMELO gives the tracker a pool of its own, of 1 Kb (section 4).
func newMELO(p Params) (Tracker, error) {
	r := param.NewReader("reorder: melo", p)
	n := r.Int("pool_bits", 1024, 8, bitpool.MaxBits)
	packets := bufferPackets(r)
	if err := r.Err(); err != nil {
		return nil, err
	}
	pool, err := bitpool.New(n)
	if err != nil {
		return nil, err
	}
	return NewMELO(pool, packets), nil
}

// MELOFactory makes trackers whose bits are in pool: those of one NIC.
func MELOFactory(pool *bitpool.Pool) Factory {
	return func(p Params) (Tracker, error) {
		r := param.NewReader("reorder: melo", p)
		packets := bufferPackets(r)
		if err := r.Err(); err != nil {
			return nil, err
		}
		return NewMELO(pool, packets), nil
	}
}

// bufferPackets reads the size of the re-ordering buffer: "a BDP large", 1 MB of
// packets of 1 KB (3.2.4).
func bufferPackets(r *param.Reader) int { return r.Int("bdp_packets", 1024, 1, 1<<20) }

// Reset implements Tracker. The connection gives its blocks back.
func (m *MELO) Reset(psn bth.PSN) {
	clear(m.buffer)
	*m = MELO{list: m.list, buffer: m.buffer}
	m.list.Reset(psn)
}

// Buffered implements Buffered.
func (*MELO) Buffered() {}

// place is that of psn in the buffer: the PSN is the offset (3.2.2), from the place of RCV.NXT.
func (m *MELO) place(psn bth.PSN) int {
	n := len(m.buffer)
	return ((m.head+psn.Diff(m.list.Front()))%n + n) % n
}

// Classify implements Tracker. A connection that has been swapped out is swapped in; what is
// not in order is refused if there is no room for that.
func (m *MELO) Classify(psn bth.PSN) Verdict {
	v := m.classify(psn)
	m.beyond, m.judged = psn, v == Beyond
	return v
}

func (m *MELO) classify(psn bth.PSN) Verdict {
	d := psn.Diff(m.list.Front())
	switch {
	case d < 0:
		return Duplicate
	case d == 0:
		return InOrder
	case d >= len(m.buffer) || !m.swapIn():
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

// Receive implements Tracker.
func (m *MELO) Receive(psn bth.PSN, ends bool) (v Verdict, advanced uint32) {
	if v = Beyond; !m.judged || m.beyond != psn {
		v = m.classify(psn)
	}
	m.psn, m.report, m.judged = psn, reportACK, false
	switch v {
	case InOrder:
		advanced = m.advance(ends)
	case Held:
		m.hold(psn, ends)
	case Beyond:
		m.report = reportRefused
	case Duplicate:
		if psn.After(m.list.Front()) {
			m.report = reportSACK
		}
	}
	return v, advanced
}

// hold records a packet ahead of a gap.
func (m *MELO) hold(psn bth.PSN, ends bool) {
	m.report = reportSACK
	if high := m.list.High(); !psn.After(high) {
		m.list.Set(psn)
		m.holes.fill(psn)
	} else {
		if m.list.Extend(psn); psn != high.Next() {
			m.holes.add(bth.Hole{Start: high.Next(), Len: uint32(psn.Diff(high) - 1)})
			m.report = reportNACK
		}
	}
	m.buffer[m.place(psn)] = slotOf(ends)
	m.filled++
}

// advance moves RCV.NXT past the packet in order and past those in the buffer.
func (m *MELO) advance(ends bool) (advanced uint32) {
	for {
		m.released.add(ends)
		m.pop()
		advanced++
		s := &m.buffer[m.head]
		if *s == slotEmpty {
			break
		}
		ends = *s == slotTail
		*s = slotEmpty
		m.filled--
	}
	m.holes.cut(m.list.Front())
	return advanced
}

// pop moves RCV.NXT by one.
func (m *MELO) pop() {
	if m.head++; m.head == len(m.buffer) {
		m.head = 0
	}
	if m.list.Empty() {
		m.list.Skip()
		return
	}
	m.list.Pop()
}

// Refuse implements Releaser.
func (m *MELO) Refuse(psn bth.PSN) { m.psn, m.report = psn, reportRefused }

// swapIn takes blocks to cover the bitmap again if they have been taken away: what has
// arrived is known from the buffer. It returns false if the pool has not enough (3.2.5).
func (m *MELO) swapIn() bool {
	if !m.list.Swapped() {
		return true
	}
	nxt, last := m.list.Front(), 0
	for i := range m.buffer {
		if m.buffer[m.place(nxt.Add(i))] != slotEmpty {
			last = i
		}
	}
	if m.filled > 0 && !m.list.CanExtend(nxt.Add(last)) {
		return false
	}
	m.list.SwapIn()
	for i := 1; m.filled > 0 && i <= last; i++ {
		if m.buffer[m.place(nxt.Add(i))] != slotEmpty {
			m.list.Extend(nxt.Add(i))
		}
	}
	return true
}

// Expected implements Tracker: RCV.NXT.
func (m *MELO) Expected() bth.PSN { return m.list.Front() }

// Feedback implements Tracker: a NACK with the most recent holes when one has formed
// (3.2.4).
func (m *MELO) Feedback(f *Feedback) {
	f.Expected = m.list.Front()
	if m.report == reportACK {
		return
	}
	f.HasSACK, f.SACK, f.Refused = true, m.psn, m.report == reportRefused
	if m.report == reportNACK {
		f.Gap, f.Holes, f.NumHoles = true, m.holes.h, m.holes.n
	}
}

// Released implements Releaser.
func (m *MELO) Released() uint32 { return m.released.take() }

// Footprint implements Tracker: 12 bytes of holes, 6 of RCV.NXT and RCV.HIGH, 2 of
// start_ptr and end_ptr (3.2.4), and the blocks that the connection has now, with
// their pointers and entries in the array.
func (m *MELO) Footprint() int {
	pool := m.list.Pool()
	return 12 + 6 + 2 + m.list.Blocks()*pool.Footprint()/pool.Blocks()
}

// holes are the most recent gaps, "holes closest to RCV.HIGH", kept for each packet so
// that nobody has to look for them (3.2.4).
type holes struct {
	h [bth.MaxHoles]bth.Hole
	n uint8
}

// add makes x the most recent hole; the oldest is forgotten if there are too many.
func (s *holes) add(x bth.Hole) { s.insert(0, x) }

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

// fill takes psn out of the hole that it is in.
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

// cut removes what lies before nxt, all of which has arrived.
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
