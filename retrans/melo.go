package retrans

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// MELO is the sender of Lu et al., "Memory Efficient Loss Recovery for Hardware-based Transport in Datacenter", APNet
// 2017, section 3.2.4. It rebuilds the bitmap of the receiver from the holes in NACKs, in a bits pool that all connections
// of the NIC share, and retransmits the missing packets.
//
//	una <= retx <= high < nxt
//
// The timeout repairs the loss of a retransmission: it retransmits the holes of the bitmap, or all packets if there are
// none. In the paper it retransmits "all packets starting from the front of the bitmap" (3.2.3), and packets that the
// receiver drops for lack of bits start a go-back-N (3.2.5); parameters select that. The sender does not remember holes
// for which the pool has no blocks; another NACK reports them, or the timeout repairs them (3.2.5).
type MELO struct {
	timeout
	list    bitpool.List   // from una to high, the highest PSN known to have arrived
	retx    bitpool.Cursor // holes before it have been retransmitted
	pending uint32         // holes from retx on
	arrived uint32         // packets of the list that are not holes
	nxt     bth.PSN
	// After a timeout or with go-back-N the packets from tail to tailEnd, of unknown state, are to be retransmitted too.
	tail, tailEnd bth.PSN
	back          bth.PSN // first packet of the latest go-back-N
	goingBack     bool    // that packet is not known to have arrived

	cap     uint32 // maximum number of outstanding packets
	partial bool   // a timeout retransmits holes only
	goBackN bool   // a packet that the receiver dropped for lack of bits starts go-back-N
}

// meloRTO is IRN's RTO_high, in microseconds. The paper gives no timeout, and lost retransmissions depend on it.
const meloRTO = 320

// meloBDP is the bandwidth-delay product of the paper's evaluation of the pool, in packets of 1 KB: 40 Gb/s and 200 us,
// "the 99.9 % RTT for a commodity RDMA datacenter" (4.2.2).
const meloBDP = 977

// shareMELO makes the pool of a NIC, as large as the receiver's (3.2.4).
func shareMELO(r *param.Reader) func(*param.Reader) Recovery {
	pool := bitpool.Read(r)
	return func(r *param.Reader) Recovery { return ReadMELO(r, pool) }
}

// ReadMELO makes a recovery whose bits are in pool.
func ReadMELO(r *param.Reader, pool *bitpool.Pool) *MELO {
	m := &MELO{list: bitpool.MakeList(pool), cap: uint32(r.Int("bdp_packets", meloBDP, 1, 1<<20))}
	m.partial, m.goBackN = r.Bool("partial_timeout", true), r.Bool("go_back_n", false)
	m.timeout = readTimeout(r, meloRTO)
	m.Reset(bth.PSN{})
	return m
}

// Reset implements Recovery. The connection returns its blocks.
func (m *MELO) Reset(psn bth.PSN) {
	m.list.Reset(psn)
	*m = MELO{list: m.list, nxt: psn, tail: psn, tailEnd: psn, cap: m.cap, partial: m.partial, goBackN: m.goBackN, timeout: m.timeout}
	m.restart(0)
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
		m.tail = m.tail.Add(int(min(span, m.tailEnd.Since(m.tail))))
	}
}

// OnFeedback implements Recovery.
func (m *MELO) OnFeedback(now mono.Time, f *reorder.Feedback) Outcome {
	acked := f.Expected.Since(m.Una())
	if acked > m.outstanding() {
		return Outcome{}
	}
	known := m.arrived
	if acked > 0 {
		m.advance(f.Expected, acked)
		m.restart(now)
	}
	before := m.pending
	if f.HasSACK && !f.Refused && f.NumHoles > 0 && f.SACK != m.Una() && f.SACK.Since(m.Una()) < m.outstanding() {
		m.rebuild(f)
	}
	lost := m.pending - before
	if m.goBackN && f.HasSACK && f.Refused {
		lost += m.dropped(f.SACK)
	}
	return Outcome{Acked: acked, Delivered: acked + m.arrived - known, Lost: lost}
}

// dropped begins go-back-N at psn, which the receiver dropped for lack of bits (3.2.5). It returns the number of packets
// newly to be retransmitted. A packet in the bitmap was a retransmission that needed the middle of the receiver's. It
// waits for the timeout (3.2.3), and so does a retransmission of the go-back-N that is dropped again.
func (m *MELO) dropped(psn bth.PSN) (lost uint32) {
	if psn.Since(m.Una()) >= m.outstanding() || !psn.After(m.list.High()) || m.goingBack && !psn.Before(m.back) {
		return 0
	}
	before := m.waiting()
	if m.tail == m.tailEnd || psn.Before(m.tail) {
		m.tail = psn
	}
	m.back, m.goingBack, m.tailEnd = psn, true, m.nxt
	return m.waiting() - before
}

// advance moves una.
func (m *MELO) advance(to bth.PSN, acked uint32) {
	left := m.nxt.Since(to)
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
	if m.tail.Since(to) > left {
		m.tail = to
	}
	if m.tailEnd.Since(to) > left {
		m.tailEnd = to
	}
	m.goingBack = m.goingBack && m.back.Since(to) < left
}

// rebuild appends to the bitmap the state that a NACK reports for the packets behind high, up to the packet that it
// answers, the receiver's RCV.HIGH. For older packets the NACK may repeat the report of an earlier one. If all hole
// entries are in use, the state of the packets before the holes is unknown.
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
	// The receiver has advanced beyond the packets of unknown state.
	if end := m.list.High().Next(); m.tail.Before(end) {
		m.tail = end
		if m.tailEnd.Before(end) {
			m.tailEnd = end
		}
	}
	m.goingBack = m.goingBack && m.back.After(m.list.High())
}

// missing reports whether psn is in a hole of f, or before the packets that f describes.
func missing(f *reorder.Feedback, psn bth.PSN) bool {
	n := min(f.NumHoles, bth.MaxHoles)
	for _, h := range f.Holes[:n] {
		if psn.Since(h.Start) < h.Len {
			return true
		}
	}
	return n == bth.MaxHoles && psn.Before(f.Holes[n-1].Start)
}

// OnRNR implements Recovery: as after a timeout.
func (m *MELO) OnRNR(now mono.Time) {
	b := m.backoff
	m.OnTimeout(now)
	m.backoff = b
}

// OnTimeout implements Recovery. It retransmits the holes of the bitmap. Packets behind the bitmap may still be in the
// network; they are retransmitted when there is no bitmap. The packet at the front is missing in any case. It may have a
// mark if many NACKs were lost, because receivers forget all holes but three. If timeouts are not partial, the sender
// forgets the bitmap, and retransmits all packets.
func (m *MELO) OnTimeout(now mono.Time) Outcome {
	m.base = now
	m.backoff.expired()
	m.goingBack = false
	before := m.waiting()
	if !m.partial {
		m.list.Reset(m.Una())
		m.arrived = 0
	} else if set, _ := m.list.Reach(m.Una()); set && !m.list.Empty() {
		m.list.ClearFront()
		m.arrived--
	}
	m.retx.Rewind(&m.list)
	m.tail, m.tailEnd = m.list.High().Next(), m.nxt
	if m.pending = m.tail.Since(m.Una()) - m.arrived; m.pending > 0 {
		m.tailEnd = m.tail
	}
	after := m.waiting()
	return Outcome{Lost: after - min(before, after)}
}

// waiting returns the number of packets to be retransmitted.
func (m *MELO) waiting() uint32 { return m.pending + m.tailEnd.Since(m.tail) }

// NextRetransmit implements Recovery.
func (m *MELO) NextRetransmit() (psn bth.PSN, ok bool) {
	if m.pending > 0 && m.retx.Seek(&m.list) {
		return m.retx.PSN(), true
	}
	return m.tail, m.tail != m.tailEnd
}

// Cap implements Capped. The BDP limits the outstanding packets, including those that have arrived ahead of a gap; pool
// and re-ordering buffer have that size (3.2.2, 3.2.3).
func (m *MELO) Cap() uint32 { return m.cap }

func (m *MELO) outstanding() uint32 { return m.nxt.Since(m.Una()) }

// Una implements Recovery.
func (m *MELO) Una() bth.PSN { return m.list.Front() }

// InFlight implements Recovery: packets that are neither known to have arrived nor wait for retransmission.
func (m *MELO) InFlight() uint32 { return m.outstanding() - m.arrived - m.waiting() }

// Deadline implements Recovery. While the oldest packet waits for retransmission and no packet is in flight, no answer can
// be missing.
func (m *MELO) Deadline() mono.Time {
	if m.Una() == m.nxt {
		return mono.Never
	}
	again, ok := m.NextRetransmit()
	return m.at(!ok || again != m.Una() || m.InFlight() > 0)
}

// Footprint returns the number of bytes of state that RC does not have, as the paper counts: high (3), retx and its
// pointer (3 + 1), the list's two pointers (2), and the blocks that the connection holds now, with their pointers and
// array entries.
func (m *MELO) Footprint() int {
	pool := m.list.Pool()
	return 3 + 4 + 2 + m.list.Blocks()*pool.Footprint()/pool.Blocks()
}
