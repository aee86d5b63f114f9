package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

func psn(v uint32) bth.PSN { return bth.MakePSN(v) }

// said returns t's next acknowledgement.
func said(t reorder.Tracker) (f reorder.Feedback) {
	t.Feedback(&f)
	return f
}

// arrival is a packet, the expected verdict and the number of PSNs by which Expected advances.
type arrival struct {
	psn      uint32
	verdict  reorder.Verdict
	advanced uint32
}

// receive classifies and commits packet psn, and returns the number of PSNs by which Expected advances.
func receive(trk reorder.Tracker, psn bth.PSN) (v reorder.Verdict, advanced uint32) {
	before := trk.Expected()
	v = trk.Classify(psn)
	trk.Commit(psn, v)
	return v, uint32(trk.Expected().Diff(before))
}

// play passes a script of arrivals to trk and compares the results.
func play(t *testing.T, trk reorder.Tracker, script []arrival) {
	t.Helper()
	for i, c := range script {
		p := psn(c.psn)
		if v, n := receive(trk, p); v != c.verdict || n != c.advanced {
			t.Errorf("%d: receive(%v) = %d, %d, want %d, %d", i, p, v, n, c.verdict, c.advanced)
		}
	}
}

// TestMPRDMABitmap checks the states of section 3.3 across the wrap of the PSNs and of the ring.
func TestMPRDMABitmap(t *testing.T) {
	trk := reorder.NewMPRDMA(64)
	trk.Reset(psn(0xfffffe))
	play(t, trk, []arrival{
		{0xfffffe, reorder.InOrder, 1},
		{0xfffffe, reorder.Duplicate, 0},
		{1, reorder.Held, 0},
		{1, reorder.Duplicate, 0},
		{0, reorder.Held, 0},
		{2, reorder.Held, 0},
		{4, reorder.Held, 0},
		// The bitmap tracks up to rcv_nxt + L; later packets are dropped.
		{0xffffff + 64, reorder.Held, 0},
		{0xffffff + 65, reorder.Beyond, 0},
		{0xffffff + 64, reorder.Duplicate, 0},
		{0xffffff, reorder.InOrder, 4},
		{3, reorder.InOrder, 2},
		{4, reorder.Duplicate, 0},
		{69, reorder.Held, 0},
		{70, reorder.Beyond, 0},
	})
	if trk.Expected() != psn(5) {
		t.Errorf("rcv_nxt is %v", trk.Expected())
	}
	if n, bits := trk.Footprint(), trk.Bitmap(); n != 17 || bits != 16 {
		t.Errorf("footprint %d, %d of bits, want 17 and 16 for L = 64", n, bits)
	}
}

// TestMPRDMAFeedback: an acknowledgement carries the PSN of its packet. A packet that overflows the bitmap (3.5) and
// an early synchronise operation (3.4) trigger a NACK.
func TestMPRDMAFeedback(t *testing.T) {
	trk := reorder.NewMPRDMA(64)
	trk.Reset(psn(100))
	if f := said(trk); f != (reorder.Feedback{Expected: psn(100)}) {
		t.Errorf("before all packets: %+v", f)
	}
	answer := func(what string, want reorder.Feedback) {
		t.Helper()
		if f := said(trk); f != want {
			t.Errorf("%s: %+v, want %+v", what, f, want)
		}
	}
	receive(trk, psn(100))
	answer("in order", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})
	receive(trk, psn(105))
	answer("ahead", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(105)})
	receive(trk, psn(166))
	answer("overflow", reorder.Feedback{Expected: psn(101), Gap: true, HasSACK: true, SACK: psn(166), Refused: true})
	receive(trk, psn(100))
	answer("again", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})

	// A synchronise operation of packets 102 to 104.
	if !trk.Early(psn(102)) || trk.Early(psn(101)) {
		t.Error("only what has something missing before it is early")
	}
	trk.Commit(psn(103), reorder.Refused)
	answer("early", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(103), Refused: true})
	receive(trk, psn(101))
	if trk.Early(psn(102)) {
		t.Error("nothing is missing before it any more")
	}
	if v, _ := receive(trk, psn(103)); v != reorder.Held {
		t.Errorf("its packets among themselves may be out of order: %d", v)
	}
}

// model is the reference for a tracker: a map of all accepted PSNs, counted from the first one without wrapping.
type model struct {
	next     int
	accepted map[int]bool
}

// receive accepts packet n and returns the number of packets by which next advances.
func (m *model) receive(n int) (advanced uint32) {
	for m.accepted[n] = true; m.accepted[m.next]; m.next++ {
		advanced++
	}
	return advanced
}

// free reports whether packet n has not been accepted.
func (m *model) free(n int) bool {
	return !m.accepted[n] && n >= m.next
}

// TestMPRDMAModel compares the tracker with a map.
func TestMPRDMAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 70).Draw(t, "L")
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		trk := reorder.NewMPRDMA(length)
		trk.Reset(psn(first))
		m := model{accepted: map[int]bool{}}
		for range rapid.IntRange(0, 300).Draw(t, "packets") {
			n := m.next + rapid.IntRange(-3, length+2).Draw(t, "ahead")
			want := reorder.Held
			switch {
			case n == m.next:
				want = reorder.InOrder
			case !m.free(n):
				want = reorder.Duplicate
			case n > m.next+length:
				want = reorder.Beyond
			}
			var advanced uint32
			if want == reorder.InOrder || want == reorder.Held {
				advanced = m.receive(n)
			}
			p := psn(first + uint32(n))
			if v := trk.Classify(p); v != want {
				t.Fatalf("%d: classified %d, want %d", n, v, want)
			}
			v, got := receive(trk, p)
			if v != want || got != advanced {
				t.Fatalf("%d: %d, %d, want %d, %d", n, v, got, want, advanced)
			}
			f := reorder.Feedback{Expected: psn(first + uint32(m.next)), HasSACK: true, SACK: p, Gap: v == reorder.Beyond, Refused: v == reorder.Beyond}
			if trk.Expected() != f.Expected || said(trk) != f {
				t.Fatalf("%d: %+v, want %+v", n, said(trk), f)
			}
		}
	})
}
