package retrans

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// newTestIRN sends n packets from PSN 0xfffffe on; PSN 10 is the 12th.
func newTestIRN(t *testing.T, p Params, n int) *IRN {
	t.Helper()
	r, err := New("irn", p)
	if err != nil {
		t.Fatal(err)
	}
	r.Reset(psn(0xfffffe))
	for i := range n {
		r.OnSent(0, at(i), 1, false)
	}
	return r.(*IRN)
}

// at is the PSN of packet i.
func at(i int) bth.PSN { return psn(0xfffffe).Add(i) }

// nack returns the NACK that packet i triggers while expected is the first missing packet.
func nack(expected, i int) *reorder.Feedback {
	return &reorder.Feedback{Expected: at(expected), Gap: true, HasSACK: true, SACK: at(i)}
}

func ack(expected int) *reorder.Feedback { return &reorder.Feedback{Expected: at(expected)} }

// expectAgain compares the retransmissions with want, a list of packet numbers.
func expectAgain(t *testing.T, what string, r Recovery, want ...int) {
	t.Helper()
	for _, i := range want {
		p, ok := r.NextRetransmit()
		if !ok || p != at(i) {
			t.Fatalf("%s: %v, %v is sent again, want packet %d", what, p, ok, i)
		}
		r.OnSent(3, p, 1, true)
	}
	if p, ok := r.NextRetransmit(); ok {
		t.Fatalf("%s: %v too is sent again", what, p)
	}
}

// TestIRNRecovery checks the rules of section 3.1 one by one.
func TestIRNRecovery(t *testing.T) {
	r := newTestIRN(t, nil, 10)
	if out := r.OnFeedback(1, nack(2, 4)); out != (Outcome{Acked: 2, Delivered: 3, Lost: 2}) {
		t.Errorf("%+v", out)
	}
	// 2 is the cumulative acknowledgement; 3 is lost because 4 has been acknowledged.
	expectAgain(t, "first NACK", r, 2, 3)
	if n := r.InFlight(); n != 7 {
		t.Errorf("%d in flight: 2, 3, 5 to 9", n)
	}
	r.OnFeedback(1, nack(2, 5))
	expectAgain(t, "nothing new is missing", r)
	if out := r.OnFeedback(1, nack(2, 7)); out.Lost != 1 {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "6 is before 7", r, 6)
	r.OnSent(2, at(10), 1, false) // new data in recovery
	if out := r.OnFeedback(4, ack(6)); out != (Outcome{Acked: 4, Delivered: 2}) {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "6 has been sent again already", r)
	// All packets up to 9 were sent before recovery: 9 is the recovery sequence.
	r.OnFeedback(5, ack(9))
	if !r.active {
		t.Error("the recovery sequence is not acknowledged")
	}
	expectAgain(t, "nothing higher than 9 has been acknowledged", r)
	r.OnFeedback(6, ack(10))
	if r.active {
		t.Error("an acknowledgement greater than the recovery sequence ends recovery")
	}
	r.OnSent(7, at(11), 1, false)
	if out := r.OnFeedback(7, nack(10, 11)); out.Lost != 1 {
		t.Errorf("a NACK begins another: %+v", out)
	}
	expectAgain(t, "again", r, 10)
	r.OnFeedback(8, ack(12))
	if r.InFlight() != 0 || r.Deadline() != mono.Never {
		t.Errorf("%d in flight, deadline %v", r.InFlight(), r.Deadline())
	}
}

// TestIRNTimeout: a timeout begins recovery like a NACK, and repairs a lost retransmission.
func TestIRNTimeout(t *testing.T) {
	r := newTestIRN(t, nil, 6)
	r.OnFeedback(1, nack(0, 3))
	expectAgain(t, "NACK", r, 0, 1, 2)
	for range 2 {
		if out := r.OnTimeout(r.Deadline()); out.Lost != 3 {
			t.Errorf("%+v", out)
		}
		if n := r.InFlight(); n != 0 {
			t.Errorf("%d in flight after a timeout", n)
		}
		expectAgain(t, "timeout", r, 0, 1, 2)
	}
	r = newTestIRN(t, nil, 6)
	r.OnTimeout(r.Deadline())
	expectAgain(t, "timeout without SACKs", r, 0)
	r.OnFeedback(9, ack(1))
	expectAgain(t, "1 is older than the timeout", r, 1)
	r.OnFeedback(9, ack(6))
	expectAgain(t, "recovery has ended", r)

	r = newTestIRN(t, nil, 6)
	r.OnFeedback(9, nack(0, 1))
	expectAgain(t, "NACK", r, 0)
	r.OnFeedback(9, ack(2))
	expectAgain(t, "nothing says that 2 is lost", r)
}

// TestIRNPartial: without partial_ack, as in the paper, each later packet that is lost waits for a timeout of its own, unless
// a higher PSN is acknowledged selectively (3.1).
func TestIRNPartial(t *testing.T) {
	r := newTestIRN(t, Params{"partial_ack": 0}, 6)
	r.OnTimeout(r.Deadline())
	expectAgain(t, "timeout", r, 0)
	r.OnFeedback(9, ack(1))
	expectAgain(t, "nothing says that 1 is lost", r)
	r.OnTimeout(r.Deadline())
	expectAgain(t, "its own timeout", r, 1)
	r.OnFeedback(12, nack(2, 4))
	expectAgain(t, "a selective acknowledgement", r, 2, 3)
}

// TestIRNRewind: with rewind, as in conweave-ns3, a NACK retransmits all packets that are not acknowledged selectively, also those
// in the network. An acknowledgement without a gap ends recovery but not the retransmission, and the next NACK begins it again.
func TestIRNRewind(t *testing.T) {
	r := newTestIRN(t, Params{"rewind": 1}, 8)
	if out := r.OnFeedback(1, nack(1, 2)); out.Lost != 6 {
		t.Errorf("%+v", out)
	}
	if p, ok := r.NextRetransmit(); !ok || p != at(1) {
		t.Fatalf("%v, %v", p, ok)
	}
	r.OnSent(2, at(1), 1, true)
	if p, _ := r.NextRetransmit(); p != at(3) {
		t.Errorf("%v follows 1: 2 is acknowledged selectively", p)
	}
	r.OnSent(2, at(3), 1, true)
	r.OnFeedback(3, ack(3))
	if p, _ := r.NextRetransmit(); r.active || p != at(4) {
		t.Errorf("recovery %v, next %v: an acknowledgement ends recovery, and 4 to 7 are still retransmitted", r.active, p)
	}
	r.OnSent(4, at(4), 1, true)
	r.OnFeedback(5, nack(3, 6))
	if p, _ := r.NextRetransmit(); p != at(3) {
		t.Errorf("%v, another NACK rewinds to 3", p)
	}
	r.OnFeedback(6, ack(4))
	r.OnSent(6, at(4), 1, true)
	r.OnFeedback(6, ack(5))
	if p, _ := r.NextRetransmit(); p != at(5) || !r.active {
		t.Errorf("%v, recovery %v: the receiver holds 6, so 5 is missing", p, r.active)
	}
	r.OnFeedback(7, ack(8))
	expectAgain(t, "nothing is outstanding", r)
}

// TestIRNStale: feedback on packets that are not outstanding changes nothing.
func TestIRNStale(t *testing.T) {
	for _, f := range []*reorder.Feedback{
		ack(-1), ack(7), nack(-3, -2), nack(-3, 6), nack(-MaxLate-1, 2), nack(7, 8), nack(0, 6), nack(0, -1), nack(0, 1<<23),
		{Expected: at(0), HasSACK: true, SACK: at(2)}, // no NACK
		{Expected: at(0), HasSACK: true, SACK: at(0)},
	} {
		r := newTestIRN(t, nil, 6)
		if out := r.OnFeedback(1, f); out.Lost != 0 || out.Acked != 0 || r.Una() != at(0) || r.active {
			t.Errorf("%+v: %+v, una %v, active %v", f, out, r.Una(), r.active)
		}
		expectAgain(t, "stale", r)
	}
}

// TestIRNOvertaken: a NACK that arrives after later ones still acknowledges its packet (3.1).
func TestIRNOvertaken(t *testing.T) {
	r := newTestIRN(t, nil, 10)
	r.OnFeedback(1, nack(4, 6))
	expectAgain(t, "4 and 5 before 6", r, 4, 5)
	if out := r.OnFeedback(2, nack(2, 8)); out != (Outcome{Delivered: 1, Lost: 1}) {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "7 before 8", r, 7)
	for _, f := range []*reorder.Feedback{nack(2, 8), nack(2, 3), nack(2, 10), ack(2), nack(2-MaxLate-2, 9)} {
		if out := r.OnFeedback(3, f); out != (Outcome{}) {
			t.Errorf("%+v: %+v", f, out)
		}
		expectAgain(t, "says nothing", r)
	}
}

// TestNothingOutstanding: with nothing outstanding, a NAK, a "not ready" or a timeout triggers no retransmission and
// does not delay the next packet.
func TestNothingOutstanding(t *testing.T) {
	for _, name := range Names() {
		r, err := New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetTimeout(time.Millisecond)
		for what, event := range map[string]func(){
			"NAK":       func() { r.OnFeedback(2, &reorder.Feedback{Expected: at(1), Gap: true}) },
			"NACK":      func() { r.OnFeedback(2, nack(1, 1)) },
			"not ready": func() { r.OnRNR(2) },
			"timeout":   func() { r.OnTimeout(2) },
		} {
			r.Reset(at(0))
			r.OnSent(0, at(0), 1, false)
			r.OnFeedback(1, ack(1))
			event()
			if p, ok := r.NextRetransmit(); ok || r.InFlight() != 0 || r.Deadline() != mono.Never {
				t.Errorf("%s: %s: %v %v, %d in flight, deadline %v", name, what, p, ok, r.InFlight(), r.Deadline())
			}
			c, ok := r.(Capped)
			if ok && c.Cap() == 0 {
				t.Errorf("%s: %s: nothing may be sent", name, what)
			}
			r.OnSent(3, at(1), 1, false)
			if p, ok := r.NextRetransmit(); ok || r.InFlight() != 1 {
				t.Errorf("%s: %s, then one sent: %v %v, %d in flight", name, what, p, ok, r.InFlight())
			}
			r.OnFeedback(4, ack(2))
			if r.Una() != at(2) || r.Deadline() != mono.Never {
				t.Errorf("%s: %s: una %v", name, what, r.Una())
			}
		}
	}
}

// TestNotReady: after an RNR NAK the sender retransmits all packets without evidence of arrival. This is no timeout:
// no timeout doubles.
func TestNotReady(t *testing.T) {
	for name, p := range map[string]Params{
		"gobackn": nil, "irn": nil, "melo": nil, "selective": nil, "mp-rdma": {"rto_us": 100}, "eunomia": {"rto_us": 100, "selective_repeat": 1},
	} {
		r, err := New(name, p)
		if err != nil {
			t.Fatal(err)
		}
		r.SetTimeout(time.Millisecond)
		r.Reset(at(0))
		rto := func() time.Duration {
			for i := range 5 {
				r.OnSent(9, at(i), 1, false)
			}
			return r.Deadline().Sub(9)
		}
		before := rto()
		r.OnFeedback(10, ack(0))
		r.OnRNR(10)
		if r.InFlight() != 0 || r.Deadline() != mono.Never {
			t.Errorf("%s: %d in flight, deadline %v", name, r.InFlight(), r.Deadline())
		}
		again := 0
		for p, ok := r.NextRetransmit(); ok && again < 9; p, ok = r.NextRetransmit() {
			r.OnSent(9, p, 1, true)
			again++
		}
		if after := r.Deadline().Sub(9); after != before {
			t.Errorf("%s: timeout %v, %v before", name, after, before)
		}
		if want := 5; again != want && name != "irn" || again == 0 {
			t.Errorf("%s: %d are sent again, want %d", name, again, want)
		}
	}
}

// TestIRNVariants checks the variants that the paper compares (4.3).
func TestIRNVariants(t *testing.T) {
	r := newTestIRN(t, Params{"go_back_n": 1}, 6)
	r.OnFeedback(1, nack(1, 4))
	if r.InFlight() != 0 {
		t.Errorf("go-back-N: %d in flight", r.InFlight())
	}
	expectAgain(t, "go-back-N", r, 1, 2, 3, 4, 5)
	r.OnFeedback(1, nack(1, 5))
	expectAgain(t, "a second NACK of the same gap", r)

	r = newTestIRN(t, Params{"sack": 0}, 6)
	r.OnFeedback(1, nack(1, 4))
	expectAgain(t, "without a bitmap: one in a round trip", r, 1)
	r.OnFeedback(2, nack(1, 5))
	expectAgain(t, "still", r)
	if out := r.OnFeedback(3, ack(3)); out != (Outcome{Acked: 2, Delivered: 2, Lost: 1}) {
		t.Errorf("%+v", out)
	}
	expectAgain(t, "the next round trip", r, 3)
	r.OnFeedback(4, ack(6))
	expectAgain(t, "the end", r)

	if n := newTestIRN(t, nil, 0).Cap(); n != 110 {
		t.Errorf("the cap is %d: 40 Gb/s, 24 us, 1 KB", n)
	}
	if n := newTestIRN(t, Params{"bdp_packets": 9}, 0).Cap(); n != 9 {
		t.Errorf("the cap is %d", n)
	}
	if n := newTestIRN(t, Params{"bdp_fc": 0}, 0).Cap(); n != 1<<23 {
		t.Errorf("without BDP-FC the cap is %d", n)
	}
	for _, p := range []Params{{"bdp_packets": 0}, {"go_back_n": 2}, {"rto_low_us": 0}, {"rto": 1}} {
		if _, err := New("irn", p); err == nil {
			t.Errorf("%v is accepted", p)
		}
	}
}

// TestIRNTimeouts: the timeout is RTO_low of 100 us with at most N = 3 packets in flight, RTO_high of 320 us
// otherwise (4.1). The queue pair's timeout has no effect.
func TestIRNTimeouts(t *testing.T) {
	const us = time.Microsecond
	for _, c := range []struct {
		p       Params
		packets int
		want    time.Duration
	}{
		{nil, 1, 100 * us}, {nil, 3, 100 * us}, {nil, 4, 320 * us},
		{Params{"rto_low_packets": 0}, 1, 320 * us},
		{Params{"rto_low_us": 7, "rto_high_us": 9.5}, 3, 7 * us},
		{Params{"rto_low_us": 7, "rto_high_us": 9.5}, 4, 9500},
		{Params{"dynamic_rto": 1}, 1, 320 * us},
	} {
		r := newTestIRN(t, c.p, c.packets)
		r.SetTimeout(time.Second)
		if d := r.Deadline(); d != mono.Time(0).Add(c.want) {
			t.Errorf("%v, %d packets: %v, want %v", c.p, c.packets, d, c.want)
		}
	}
	r := newTestIRN(t, nil, 5)
	if r.OnFeedback(50, ack(1)); r.Deadline() != mono.Time(50).Add(320*us) {
		t.Errorf("progress starts it again: %v", r.Deadline())
	}
	if r.OnFeedback(60, ack(2)); r.Deadline() != mono.Time(60).Add(100*us) {
		t.Errorf("three are left: %v", r.Deadline())
	}
}

// TestIRNDynamic checks TCP's estimate: the first round trip and half of it as deviation, then the filters. Timeouts
// double it.
func TestIRNDynamic(t *testing.T) {
	const us = time.Microsecond
	r := newTestIRN(t, Params{"dynamic_rto": 1, "rto_low_us": 10}, 4)
	base := mono.Time(0).Add(80 * us)
	r.OnFeedback(base, ack(1)) // packet 0 was timed
	if d := r.Deadline().Sub(base); d != 80*us+4*40*us {
		t.Errorf("first sample: %v", d)
	}
	r.OnSent(base, at(4), 1, false)
	r.OnFeedback(base.Add(40*us), nack(1, 4))
	// rttvar = 40 + (40-40)/4, srtt = 80 + (40-80)/8
	if d := r.timer.rto(9); d != 75*us+4*40*us {
		t.Errorf("a SACK is a sample too: %v", d)
	}
	r.OnTimeout(0)
	r.OnTimeout(0)
	if d := r.timer.rto(9); d != 4*235*us {
		t.Errorf("doubled twice: %v", d)
	}
	r.OnSent(base, at(5), 1, false)
	r.OnSent(base, at(5), 1, true)
	if r.OnFeedback(base.Add(us), ack(6)); r.timer.rto(9) != 235*us {
		t.Errorf("progress, and what was sent again is no sample: %v", r.timer.rto(9))
	}
}

// irnModel implements the paper's text with sets of packets.
type irnModel struct {
	una, nxt, recovery int
	sacked, again      map[int]bool // again: retransmitted since recovery began
	active, expired    bool
}

// lost returns the next packet to retransmit, -1 if there is none.
func (m *irnModel) lost() int {
	high := -1
	for i := range m.sacked {
		high = max(high, i)
	}
	for i := m.una; i < m.nxt && m.active; i++ {
		first := i == m.una && (len(m.again) == 0 || m.expired)
		if !m.sacked[i] && !m.again[i] && (first || i < high) {
			return i
		}
	}
	return -1
}

func (m *irnModel) enter(expired bool) {
	m.active, m.expired, m.recovery, m.again = true, expired, m.nxt, map[int]bool{}
}

func (m *irnModel) feedback(expected, sack int, refused bool) {
	m.una = expected
	for i := range m.sacked {
		if i < expected {
			delete(m.sacked, i)
		}
	}
	if m.una >= m.recovery {
		m.active = false
	}
	if sack < 0 {
		return
	}
	if !refused {
		m.sacked[sack] = true
	}
	if !m.active {
		m.enter(false)
	}
}

// TestIRNModel compares the recovery with sets.
func TestIRNModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := New("irn", Params{"bdp_packets": 128})
		if err != nil {
			t.Fatal(err)
		}
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		at := func(i int) bth.PSN { return psn(first).Add(i) }
		r.Reset(at(0))
		m := irnModel{sacked: map[int]bool{}}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			op := rapid.IntRange(0, 7).Draw(t, "op")
			switch {
			case op <= 2 && m.nxt-m.una < 128:
				r.OnSent(1, at(m.nxt), 1, false)
				m.nxt++
			case op == 3:
				if i := m.lost(); i >= 0 {
					r.OnSent(2, at(i), 1, true)
					m.again[i] = true
				}
			case op == 4:
				to := min(m.una+rapid.IntRange(0, 9).Draw(t, "acked"), m.nxt)
				for m.sacked[to] {
					to++
				}
				r.OnFeedback(3, &reorder.Feedback{Expected: at(to)})
				m.feedback(to, -1, false)
			case op == 5 && m.nxt > m.una:
				r.OnTimeout(4)
				m.enter(true)
			case op > 5 && m.nxt > m.una+1:
				i, refused := rapid.IntRange(m.una+1, m.nxt-1).Draw(t, "sack"), rapid.IntRange(0, 9).Draw(t, "refused") == 0
				r.OnFeedback(5, &reorder.Feedback{Expected: at(m.una), Gap: true, HasSACK: true, SACK: at(i), Refused: refused})
				m.feedback(m.una, i, refused)
			}
			p, ok := r.NextRetransmit()
			if i := m.lost(); ok != (i >= 0) || ok && p != at(i) {
				t.Fatalf("%v, %v is sent again, want %d of %d to %d from %v", p, ok, i, m.una, m.nxt, at(0))
			}
			if r.Una() != at(m.una) || r.InFlight() > uint32(m.nxt-m.una) {
				t.Fatalf("una %v, %d in flight", r.Una(), r.InFlight())
			}
			if m.una != m.nxt && !ok && r.Deadline() == mono.Never {
				t.Fatal("something is outstanding, and nothing will happen")
			}
		}
	})
}

// TestIRNState: with the receiver's bitmaps of a queue pair, both directions need at most the 145 bytes of Eunomia's
// table 2. These are two bits for requests, one for responses, and an index each. The recovery allocates nothing per
// packet.
func TestIRNState(t *testing.T) {
	r := newTestIRN(t, nil, 0)
	if n, receiver := r.Footprint(), (2*110+7)/8+1+(110+7)/8+1; 2*n+receiver > 145 {
		t.Errorf("%d bytes at the senders, %d at the receivers", 2*n, receiver)
	}
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		for k := range 8 {
			r.OnSent(1, at(i+k), 1, false)
		}
		r.OnFeedback(2, nack(i+1, i+4))
		for p, ok := r.NextRetransmit(); ok; p, ok = r.NextRetransmit() {
			r.OnSent(3, p, 1, true)
		}
		r.OnTimeout(r.Deadline())
		r.OnFeedback(4, ack(i+8))
		i += 8
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
