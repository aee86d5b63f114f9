package retrans

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

func meloIn(tb interface{ Fatal(...any) }, pool *bitpool.Pool, p Params) *MELO {
	r := param.NewReader("retrans: melo", p)
	m := ReadMELO(r, pool)
	if err := r.Err(); err != nil {
		tb.Fatal(err)
	}
	return m
}

func newTestMELO(t *testing.T, bits, packets int) (*MELO, *bitpool.Pool) {
	t.Helper()
	p, err := bitpool.New(bits)
	if err != nil {
		t.Fatal(err)
	}
	m := meloIn(t, p, Params{"rto_us": 0.1, "bdp_packets": 4096})
	m.Reset(psn(0xfffffe))
	for i := range packets {
		m.OnSent(0, at(i), 1, false)
	}
	return m, p
}

// holed returns the NACK that packet i triggers. Holes are pairs of first packet and length, the most recent first.
func holed(expected, i int, holes ...int) *reorder.Feedback {
	f := nack(expected, i)
	for k := 0; k < len(holes); k += 2 {
		f.Holes[k/2] = bth.Hole{Start: at(holes[k]), Len: uint32(holes[k+1])}
		f.NumHoles++
	}
	return f
}

// TestMELOHoles: the sender rebuilds the bitmap from the NACKs and retransmits each hole once (3.2.4).
func TestMELOHoles(t *testing.T) {
	m, p := newTestMELO(t, 1024, 60)
	if out := m.OnFeedback(1, holed(2, 4, 2, 2)); out != (Outcome{Acked: 2, Delivered: 3, Lost: 2}) {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "first", m, 2, 3)
	if n := m.InFlight(); n != 57 {
		t.Errorf("%d in flight: 4 is not", n)
	}
	// The second NACK repeats the first hole; 5 and 6 have arrived.
	if out := m.OnFeedback(2, holed(2, 9, 7, 2, 2, 2)); out != (Outcome{Delivered: 3, Lost: 2}) {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "second", m, 7, 8)
	// A NACK is lost; the next one repeats its hole.
	m.OnFeedback(3, holed(2, 22, 20, 2, 12, 1, 7, 2))
	expectAgain(t, "two holes", m, 12, 20, 21)
	// Three NACKs are lost: the state of 23 to 29 is unknown.
	if out := m.OnFeedback(3, holed(2, 40, 39, 1, 35, 1, 30, 1)); out.Lost != 10 {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "nothing known", m, 23, 24, 25, 26, 27, 28, 29, 30, 35, 39)
	if out := m.OnFeedback(4, holed(2, 22, 20, 2, 12, 1, 7, 2)); out != (Outcome{}) {
		t.Errorf("an old one: %+v", out)
	}
	if out := m.OnFeedback(5, ack(35)); out != (Outcome{Acked: 33, Delivered: 15}) {
		t.Errorf("%+v", out)
	}
	if held := p.Blocks() - p.Free(); held != 1 {
		t.Errorf("%d blocks for 35 to 40, PSN 33 to 38", held)
	}
	m.OnFeedback(6, ack(60))
	if p.Free() != p.Blocks() || m.InFlight() != 0 || m.Deadline() != mono.Never {
		t.Errorf("%d free, %d in flight", p.Free(), m.InFlight())
	}
}

// TestMELOTimeout: the timeout repairs a lost retransmission. It retransmits all packets of the bitmap without
// evidence of arrival, or all packets if there is no bitmap (3.2.3).
func TestMELOTimeout(t *testing.T) {
	m, _ := newTestMELO(t, 1024, 8)
	m.OnFeedback(1, holed(0, 5, 3, 2, 0, 1))
	expectAgain(t, "NACK", m, 0, 3, 4)
	if d := m.Deadline(); d != 103 {
		t.Errorf("deadline %v: packet 0 was sent again at 3", d)
	}
	if out := m.OnTimeout(103); out.Lost != 3 || m.InFlight() != 2 {
		t.Errorf("%+v, %d in flight", out, m.InFlight())
	}
	if d := m.Deadline(); d != 303 {
		t.Errorf("deadline %v after a timeout at 103: twice as long, from then on, for what is sent again may have to wait", d)
	}
	expectAgain(t, "timeout", m, 0, 3, 4)
	m.OnTimeout(203)
	// During that retransmission, packets that were taken for lost arrive late.
	m.OnFeedback(204, holed(0, 7, 6, 1, 3, 2, 0, 1))
	expectAgain(t, "late", m, 0, 3, 4, 6)

	m, _ = newTestMELO(t, 1024, 4)
	m.OnTimeout(100)
	if m.Deadline() != mono.Never || m.InFlight() != 0 {
		t.Error("a deadline while nothing is in flight")
	}
	expectAgain(t, "no NACK", m, 0, 1, 2, 3)
	m.OnTimeout(200)
	m.OnFeedback(201, ack(2))
	expectAgain(t, "after progress", m, 2, 3)

}

// exactMELO returns a sender as in the paper, which has sent packets.
func exactMELO(t *testing.T, packets int) *MELO {
	p, err := bitpool.New(1024)
	if err != nil {
		t.Fatal(err)
	}
	m := meloIn(t, p, Params{"partial_timeout": 0, "go_back_n": 1})
	m.Reset(at(0))
	for i := range packets {
		m.OnSent(0, at(i), 1, false)
	}
	return m
}

// TestMELOWholeTimeout: if timeouts are not partial, one retransmits "all packets starting from the front of the bitmap",
// also those that have arrived (3.2.3). It forgets the bitmap; a later NACK rebuilds it.
func TestMELOWholeTimeout(t *testing.T) {
	m := exactMELO(t, 8)
	m.OnFeedback(1, holed(0, 5, 3, 2, 0, 1))
	expectAgain(t, "NACK", m, 0, 3, 4)
	if out := m.OnTimeout(200); out.Lost != 8 || m.InFlight() != 0 || m.list.Pool().Free() != m.list.Pool().Blocks() {
		t.Errorf("%+v, %d in flight, %d blocks free", out, m.InFlight(), m.list.Pool().Free())
	}
	m.OnSent(201, at(0), 1, true)
	m.OnFeedback(202, ack(3))
	expectAgain(t, "after progress", m, 3, 4, 5, 6, 7)
	m.OnSent(203, at(8), 1, false)
	m.OnSent(203, at(9), 1, false)
	m.OnFeedback(204, holed(7, 9, 7, 2))
	expectAgain(t, "a NACK", m, 7, 8)
}

// TestMELODropped: a packet that the receiver drops for lack of bits starts go-back-N from it, once (3.2.5). A dropped
// retransmission, whose bits would be in the middle of the receiver's bitmap, waits for the timeout (3.2.3).
func TestMELODropped(t *testing.T) {
	refused := func(expected, i int) *reorder.Feedback {
		f := nack(expected, i)
		f.Refused = true
		return f
	}
	m := exactMELO(t, 20)
	m.OnFeedback(1, holed(0, 5, 0, 5))
	expectAgain(t, "NACK", m, 0, 1, 2, 3, 4)
	if out := m.OnFeedback(2, refused(0, 3)); out != (Outcome{}) {
		t.Errorf("a retransmission: %+v", out)
	}
	if out := m.OnFeedback(2, refused(0, 16)); out.Lost != 4 || m.InFlight() != 15 {
		t.Errorf("%+v, %d in flight", out, m.InFlight())
	}
	m.OnFeedback(3, refused(0, 17))
	expectAgain(t, "from the first dropped packet on", m, 16, 17, 18, 19)
	for _, i := range []int{16, 18, 19} {
		m.OnFeedback(4, refused(0, i))
	}
	expectAgain(t, "once", m)
	if out := m.OnFeedback(5, refused(0, 14)); out.Lost != 6 {
		t.Errorf("an earlier packet: %+v", out)
	}
	expectAgain(t, "an earlier packet", m, 14, 15, 16, 17, 18, 19)
	m.OnFeedback(6, ack(15))
	m.OnFeedback(7, refused(15, 18))
	expectAgain(t, "again, after that packet has arrived", m, 18, 19)
	m.OnTimeout(300)
	m.OnFeedback(301, refused(15, 17))
	expectAgain(t, "a timeout retransmits them anyway", m, 15, 16, 17, 18, 19)
	m.OnFeedback(302, ack(20))
	if m.InFlight() != 0 || m.Deadline() != mono.Never {
		t.Errorf("%d in flight", m.InFlight())
	}

	m, _ = newTestMELO(t, 1024, 8)
	m.OnFeedback(1, refused(0, 4))
	expectAgain(t, "by default refusals do nothing", m)
}

// TestMELOForgotten: too many NACKs were lost, and the sender takes the expected packet for received. The timeout
// retransmits it all the same.
func TestMELOForgotten(t *testing.T) {
	m, _ := newTestMELO(t, 1024, 8)
	m.OnFeedback(1, holed(0, 6, 5, 1, 0, 1))
	expectAgain(t, "NACK", m, 0, 5)
	m.OnFeedback(2, ack(2))
	m.OnTimeout(200)
	expectAgain(t, "timeout", m, 2, 5)
}

// TestMELOExhausted: the timeout (3.2.5) and later NACKs repair losses for which the pool has no blocks.
func TestMELOExhausted(t *testing.T) {
	m, p := newTestMELO(t, 16, 40)
	if out := m.OnFeedback(1, holed(0, 30, 20, 10, 0, 1)); out != (Outcome{}) || p.Free() != 2 {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "no room", m)
	m.OnFeedback(2, ack(20))
	m.OnFeedback(3, holed(20, 31, 20, 10))
	expectAgain(t, "room", m, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29)
	m.Reset(psn(0))
	if p.Free() != 2 {
		t.Error("a reset gives the blocks back")
	}
}

// TestMELOIgnores checks feedback without holes and stale feedback.
func TestMELOIgnores(t *testing.T) {
	refused := holed(0, 3, 0, 3)
	refused.Refused = true
	for _, f := range []*reorder.Feedback{
		nack(0, 3), refused, {Expected: at(0), Gap: true}, holed(-1, 3, 0, 3), holed(7, 9, 7, 2),
		holed(0, 6, 0, 6), holed(0, -1, 0, 3), holed(0, 1<<23, 0, 3),
	} {
		m, p := newTestMELO(t, 1024, 6)
		if out := m.OnFeedback(1, f); out != (Outcome{}) || m.Una() != at(0) || m.InFlight() != 6 || p.Free() != p.Blocks() {
			t.Errorf("%+v: %+v, una %v", f, out, m.Una())
		}
	}
}

// TestMELOParameters: the sender's pool has the size of the receiver's.
func TestMELOParameters(t *testing.T) {
	for _, c := range []struct {
		p      Params
		blocks int
		rto    time.Duration
	}{
		{nil, 128, 320 * time.Microsecond},
		{Params{"pool_bits": 64, "rto_us": 5}, 8, 5 * time.Microsecond},
		{Params{"rto_us": 0}, 128, time.Second},
		{Params{"pool_bits": 3}, 0, 0}, {Params{"pool_bits": 0}, 0, 0}, {Params{"rto_us": -1}, 0, 0}, {Params{"rto": 1}, 0, 0},
	} {
		r, err := New("melo", c.p)
		if (err != nil) != (c.blocks == 0) {
			t.Errorf("%v: %v", c.p, err)
		}
		if err != nil {
			continue
		}
		r.SetTimeout(time.Second)
		r.OnSent(0, psn(0), 1, false)
		if m := r.(*MELO); m.list.Pool().Blocks() != c.blocks || r.Deadline() != mono.Time(0).Add(c.rto) {
			t.Errorf("%v: %d blocks, deadline %v", c.p, m.list.Pool().Blocks(), r.Deadline())
		}
	}
	m := NewMaker()
	shared := func(p Params) *bitpool.Pool {
		r, err := m.New("melo", p)
		if err != nil {
			t.Fatal(err)
		}
		return r.(*MELO).list.Pool()
	}
	if a := shared(nil); a != shared(Params{"rto_us": 5}) || a == shared(Params{"pool_bits": 8}) {
		t.Error("the recoveries of a NIC share pools of equal parameters, and no others")
	}
}

// TestMELOModel compares the sender with sets of arrived packets and of packets to retransmit. The receiver is
// honest, but its NACKs may be lost.
func TestMELOModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := bitpool.New(8 * rapid.IntRange(1, 30).Draw(t, "blocks"))
		if err != nil {
			t.Fatal(err)
		}
		m := meloIn(t, p, Params{"rto_us": 1e6, "bdp_packets": 4096})
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		m.Reset(psn(first))
		s := meloModel{at: func(i int) bth.PSN { return psn(first).Add(i) }, arrived: map[int]bool{}, high: -1}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				for range rapid.IntRange(1, 9).Draw(t, "packets") {
					m.OnSent(1, s.at(s.nxt), 1, false)
					s.nxt++
				}
			case 2:
				if again, ok := m.NextRetransmit(); ok {
					m.OnSent(1, again, 1, true)
					s.arrive(again.Diff(s.at(0)))
				}
			case 3:
				if i := s.high + rapid.IntRange(1, 12).Draw(t, "next"); i < s.nxt {
					f, news := s.arrive(i)
					if rapid.IntRange(0, 3).Draw(t, "lost") > 0 && news {
						m.OnFeedback(2, &f)
					}
				}
			case 4:
				m.OnFeedback(3, &reorder.Feedback{Expected: s.at(s.una)})
			case 5:
				if m.Una() != s.at(s.nxt) {
					m.OnTimeout(4)
					if again, ok := m.NextRetransmit(); !ok || again != m.Una() {
						t.Fatalf("after a timeout: %v, %v, want una %v", again, ok, m.Una())
					}
				}
			}
			s.check(t, m)
		}
		m.OnFeedback(5, &reorder.Feedback{Expected: s.at(s.nxt)})
		if p.Free() != p.Blocks() || m.InFlight() != 0 {
			t.Fatalf("%d blocks of %d are free, %d in flight", p.Free(), p.Blocks(), m.InFlight())
		}
	})
}

// meloModel is a receiver built from sets.
type meloModel struct {
	at             func(int) bth.PSN
	una, nxt, high int
	arrived        map[int]bool
}

// arrive returns the NACK of packet i if the packet opens a new hole.
func (s *meloModel) arrive(i int) (f reorder.Feedback, news bool) {
	news = i > s.high+1
	s.high = max(s.high, i)
	for s.arrived[i] = true; s.arrived[s.una]; {
		s.una++
	}
	f = reorder.Feedback{Expected: s.at(s.una), Gap: true, HasSACK: true, SACK: s.at(i)}
	for k := s.high; k > s.una && f.NumHoles < bth.MaxHoles; k-- {
		if end := k; !s.arrived[k-1] && s.arrived[k] {
			for k--; k > s.una && !s.arrived[k-1]; {
				k--
			}
			f.Holes[f.NumHoles] = bth.Hole{Start: s.at(k), Len: uint32(end - k)}
			f.NumHoles++
		}
	}
	return f, news && f.NumHoles > 0
}

// check: the sender takes no missing packet for received, retransmits no packet that it knows to have arrived, and
// counts correctly.
func (s *meloModel) check(t *rapid.T, m *MELO) {
	base := s.at(0)
	copyOf, known := *m, 0
	var again []int
	for k := m.Una(); k != m.list.High().Next(); k = k.Next() {
		if set, ok := m.list.Reach(k); ok && set && !s.arrived[k.Diff(base)] {
			t.Fatalf("%v is taken for arrived", k)
		}
	}
	for copyOf.pending > 0 && copyOf.retx.Seek(&copyOf.list) {
		again = append(again, copyOf.retx.PSN().Diff(base))
		copyOf.retx.Step()
		copyOf.pending--
	}
	if copyOf.pending != 0 || copyOf.retx.Seek(&copyOf.list) || !slices.IsSorted(again) {
		t.Fatalf("%d holes are counted too many, to be sent again %v", copyOf.pending, again)
	}
	var all bitpool.Cursor
	for all.Rewind(&m.list); all.Seek(&m.list); all.Step() {
		known--
	}
	known += m.list.High().Diff(m.Una()) + 1
	if int(m.arrived) != known || m.InFlight() > m.outstanding() {
		t.Fatalf("%d are counted as arrived, not %d; %d in flight", m.arrived, known, m.InFlight())
	}
}

// TestMELOState: the state is a few bytes, and the recovery allocates nothing per packet.
func TestMELOState(t *testing.T) {
	m, _ := newTestMELO(t, 1024, 0)
	if n := m.Footprint(); n != 9 {
		t.Errorf("%d bytes without holes", n)
	}
	i, f := 0, new(reorder.Feedback)
	if n := testing.AllocsPerRun(200, func() {
		for k := range 30 {
			m.OnSent(1, at(i+k), 1, false)
		}
		*f = reorder.Feedback{Expected: at(i + 1), Gap: true, HasSACK: true, SACK: at(i + 14), NumHoles: 2,
			Holes: [bth.MaxHoles]bth.Hole{{Start: at(i + 11), Len: 3}, {Start: at(i + 1), Len: 1}}}
		m.OnFeedback(2, f)
		for p, ok := m.NextRetransmit(); ok; p, ok = m.NextRetransmit() {
			m.OnSent(3, p, 1, true)
		}
		m.OnTimeout(m.Deadline())
		*f = reorder.Feedback{Expected: at(i + 30)}
		m.OnFeedback(4, f)
		i += 30
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	m.OnSent(1, at(i), 1, false)
	m.OnSent(1, at(i+1), 1, false)
	if m.OnFeedback(1, holed(i, i+1, i, 1)); m.Footprint() != 9+3 {
		t.Errorf("%d bytes with a hole", m.Footprint())
	}
}
