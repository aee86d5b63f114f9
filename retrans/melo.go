package retrans

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MELO is the sender of Lu et al., "Memory Efficient Loss Recovery for Hardware-based
// Transport in Datacenter", APNet 2017, section 3.2.4: from the holes in NACKs it
// rebuilds the bitmap of the receiver, in a bits pool of its own that all connections of
// the NIC share, and sends again what is missing there.
//
//	una <= retx <= high < nxt
//
// A retransmission that is lost too is repaired by the timeout: everything is sent again
// from the front of the bitmap on that is not known to have arrived (3.2.3). What the pool
// has no blocks for is not remembered: another NACK tells of it, or the timeout repairs it
// (3.2.5).
type MELO struct {
	list    bitpool.List   // from una to high, the highest PSN known to have arrived
	retx    bitpool.Cursor // holes before it have been sent again
	pending uint32         // holes from retx on
	arrived uint32         // packets of the list that are no holes
	nxt     bth.PSN
	// After a timeout, what lies between is to be sent again as well: nothing is known
	// of it.
	tail, tailEnd bth.PSN

	cap     uint32 // packets that may be outstanding
	partial bool   // a timeout leaves alone what lies behind the bitmap
	timeout timeout
	base    mono.Time // instant from which the timeout counts
}

// meloRTO is IRN's RTO_high, in microseconds. The paper gives none, and lost retransmissions
// depend on it.
const meloRTO = 320

// meloBDP is the bandwidth-delay product of the paper's evaluation of the pool, in packets
// of 1 KB: 40 Gb/s and 200 us, "the 99.9 % RTT for a commodity RDMA datacenter" (4.2.2).
const meloBDP = 977

// newMELO gives the recovery a pool of its own, as large as the receiver's (3.2.4).
func newMELO(p Params) (Recovery, error) {
	r := param.NewReader("retrans: melo", p)
	pool, err := bitpool.New(r.Int("pool_bits", 1024, 8, bitpool.MaxBits))
	if err != nil {
		return nil, err
	}
	m := readMELO(r, pool)
	return m, r.Err()
}

// MELOFactory makes recoveries whose bits are in pool: those of one NIC.
func MELOFactory(pool *bitpool.Pool) Factory {
	return func(p Params) (Recovery, error) {
		r := param.NewReader("retrans: melo", p)
		m := readMELO(r, pool)
		return m, r.Err()
	}
}

func readMELO(r *param.Reader, pool *bitpool.Pool) *MELO {
	m := &MELO{list: bitpool.MakeList(pool), cap: uint32(r.Int("bdp_packets", meloBDP, 1, 1<<20))}
	m.partial, m.timeout = r.Bool("partial_timeout", true), readTimeout(r, meloRTO)
	m.Reset(bth.PSN{})
	return m
}

// Reset implements Recovery. The blocks are given back.
func (m *MELO) Reset(psn bth.PSN) {
	m.list.Reset(psn)
	*m = MELO{list: m.list, nxt: psn, tail: psn, tailEnd: psn, cap: m.cap, partial: m.partial, timeout: m.timeout}
	m.timeout.backoff.progress()
	m.retx.Rewind(&m.list)
}

// OnSent implements Recovery.
func (m *MELO) OnSent(now mono.Time, psn bth.PSN, span uint32, rtx bool) {
	if psn == m.Una() {
		m.base = now
	}
	if !rtx {
		m.nxt = psn.Add(int(span))
		return
	}
	next, ok := m.NextRetransmit()
	switch {
	case !ok || psn != next:
	case m.pending > 0:
		m.retx.Step()
		m.pending--
	default:
		m.tail = m.tail.Add(int(min(span, distance(m.tail, m.tailEnd))))
	}
}

// OnFeedback implements Recovery.
func (m *MELO) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := distance(m.Una(), f.Expected)
	if acked > m.outstanding() {
		return Outcome{}
	}
	known := m.arrived
	if acked > 0 {
		m.advance(f.Expected, acked)
		m.base = now
		m.timeout.backoff.progress()
	}
	before := m.pending
	if f.HasSACK && !f.Refused && f.NumHoles > 0 && f.SACK != m.Una() && distance(m.Una(), f.SACK) < m.outstanding() {
		m.rebuild(f)
	}
	return Outcome{Acked: acked, Delivered: acked + m.arrived - known, Lost: m.pending - before}
}

// advance moves una.
func (m *MELO) advance(to bth.PSN, acked uint32) {
	left := distance(to, m.nxt)
	for ; acked > 0 && !m.list.Empty(); acked-- {
		una := m.Una()
		if set, _ := m.list.Reach(una); set {
			m.arrived--
		} else if m.retx.PSN() == una {
			m.pending--
		}
		if m.retx.PSN() == una {
			m.retx.Step()
		}
		m.list.Pop()
	}
	if m.list.Empty() {
		m.list.Reset(to)
		m.retx.Rewind(&m.list)
	}
	if distance(to, m.tail) > left {
		m.tail = to
	}
	if distance(to, m.tailEnd) > left {
		m.tailEnd = to
	}
}

// rebuild appends to the bitmap what a NACK says of the packets behind high, up to the
// one that it answers, which is the receiver's RCV.HIGH. Of older ones it may say, once
// more, what an earlier NACK has said. If it has as many holes as fit, nothing is known
// of what lies before them.
func (m *MELO) rebuild(f *reorder.Feedback) {
	high := m.list.High()
	if !f.SACK.After(high) || !m.list.CanExtend(f.SACK) {
		return
	}
	for psn := high.Next(); psn != f.SACK.Next(); psn = psn.Next() {
		if psn == f.SACK || psn != m.Una() && !missing(f, psn) {
			m.list.Extend(psn)
			m.arrived++
		} else {
			m.pending++
		}
	}
	// The receiver has got beyond what a timeout has found nothing known of.
	if end := m.list.High().Next(); m.tail.Before(end) {
		m.tail = end
		if m.tailEnd.Before(end) {
			m.tailEnd = end
		}
	}
}

// missing reports whether psn is in a hole of f or before what f can tell of.
func missing(f *reorder.Feedback, psn bth.PSN) bool {
	n := min(f.NumHoles, bth.MaxHoles)
	for _, h := range f.Holes[:n] {
		if distance(h.Start, psn) < h.Len {
			return true
		}
	}
	return n == bth.MaxHoles && psn.Before(f.Holes[n-1].Start)
}

// OnRNR implements Recovery: as after a timeout.
func (m *MELO) OnRNR(now mono.Time) {
	b := m.timeout.backoff
	m.OnTimeout(now)
	m.timeout.backoff = b
}

// OnTimeout implements Recovery: all from the front of the bitmap on that is not known to
// have arrived is sent again (3.2.3). What lies behind the bitmap may still be under way;
// its turn comes when there is no bitmap, or with it if timeouts are not partial. The packet at the front is missing in any case,
// also if so many NACKs were lost that it is taken for one that has arrived: receivers
// forget all holes but three.
func (m *MELO) OnTimeout(now mono.Time) Outcome {
	m.base = now
	m.timeout.backoff.expired()
	before := m.waiting()
	if set, _ := m.list.Reach(m.Una()); set && !m.list.Empty() {
		m.list.ClearFront()
		m.arrived--
	}
	m.retx.Rewind(&m.list)
	m.tail, m.tailEnd = m.list.High().Next(), m.nxt
	m.pending = distance(m.Una(), m.tail) - m.arrived
	if m.pending > 0 && m.partial {
		m.tailEnd = m.tail
	}
	after := m.waiting()
	return Outcome{Lost: after - min(before, after)}
}

// waiting is the number of packets that are to be sent again.
func (m *MELO) waiting() uint32 { return m.pending + distance(m.tail, m.tailEnd) }

// NextRetransmit implements Recovery.
func (m *MELO) NextRetransmit() (psn bth.PSN, ok bool) {
	if m.pending > 0 && m.retx.Seek(&m.list) {
		return m.retx.PSN(), true
	}
	return m.tail, m.tail != m.tailEnd
}

// Cap implements Capped: what is outstanding, also of packets that have arrived ahead of a
// gap, is bounded by the BDP, for which pool and re-ordering buffer are made (3.2.2, 3.2.3).
func (m *MELO) Cap() uint32 { return m.cap }

func (m *MELO) outstanding() uint32 { return distance(m.Una(), m.nxt) }

// Una implements Recovery.
func (m *MELO) Una() bth.PSN { return m.list.Front() }

// InFlight implements Recovery: what is neither known to have arrived nor waits to be sent
// again.
func (m *MELO) InFlight() uint32 { return m.outstanding() - m.arrived - m.waiting() }

// SetTimeout implements Recovery.
func (m *MELO) SetTimeout(d time.Duration) { m.timeout.ofQueuePair(d) }

// Deadline implements Recovery. While the oldest packet waits to be sent again and nothing
// is in flight, no answer can be missing.
func (m *MELO) Deadline() mono.Time {
	rto := m.timeout.length()
	if rto == 0 || m.Una() == m.nxt {
		return mono.Never
	}
	if again, ok := m.NextRetransmit(); ok && again == m.Una() && m.InFlight() == 0 {
		return mono.Never
	}
	return m.base.Add(rto)
}

// Footprint is the number of bytes of state that RC does not have, as the paper counts:
// high (3), retx and its pointer (3 + 1), the list's two pointers (2), and the blocks that
// the connection has now, with their pointers and entries in the array.
func (m *MELO) Footprint() int {
	pool := m.list.Pool()
	return 3 + 4 + 2 + m.list.Blocks()*pool.Footprint()/pool.Blocks()
}
