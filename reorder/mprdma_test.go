package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

func psn(v uint32) bth.PSN { return bth.MakePSN(v) }

// said is what t's next acknowledgement says.
func said(t reorder.Tracker) (f reorder.Feedback) {
	t.Feedback(&f)
	return f
}

// arrival is a packet, and what a tracker is to make of it.
type arrival struct {
	psn      uint32
	ends     bool // a message
	verdict  reorder.Verdict
	advanced uint32
	released uint32 // messages
}

// Whether a packet ends a message.
const (
	none = false
	tail = true
)

// play lets packets arrive and compares.
func play(t *testing.T, trk reorder.Releaser, script []arrival) {
	t.Helper()
	for i, c := range script {
		p := psn(c.psn)
		if v := trk.Classify(p); v != c.verdict {
			t.Errorf("%d: Classify(%v) = %d, want %d", i, p, v, c.verdict)
		}
		if v, n := trk.Receive(p, c.ends); v != c.verdict || n != c.advanced {
			t.Errorf("%d: Receive(%v) = %d, %d, want %d, %d", i, p, v, n, c.verdict, c.advanced)
		}
		if r := trk.Released(); r != c.released {
			t.Errorf("%d: %v releases %d, want %d", i, p, r, c.released)
		}
		if r := trk.Released(); r != 0 {
			t.Errorf("%d: released twice: %d", i, r)
		}
	}
}

// TestMPRDMABitmap has the states of section 3.3, over the end of the PSNs and of the
// ring.
func TestMPRDMABitmap(t *testing.T) {
	trk := reorder.NewMPRDMA(64)
	trk.Reset(psn(0xfffffe))
	play(t, trk, []arrival{
		{0xfffffe, none, reorder.InOrder, 1, 0},
		{0xfffffe, none, reorder.Duplicate, 0, 0},
		{1, tail, reorder.Held, 0, 0},
		{1, tail, reorder.Duplicate, 0, 0},
		{0, none, reorder.Held, 0, 0},
		{2, tail, reorder.Held, 0, 0},
		{4, tail, reorder.Held, 0, 0},
		// rcv_nxt + L is tracked, what is larger is dropped.
		{0xffffff + 64, tail, reorder.Held, 0, 0},
		{0xffffff + 65, tail, reorder.Beyond, 0, 0},
		{0xffffff + 64, tail, reorder.Duplicate, 0, 0},
		// The messages up to 2 are tail at once, that of 4 is not yet.
		{0xffffff, tail, reorder.InOrder, 4, 3},
		{3, none, reorder.InOrder, 2, 1},
		{4, tail, reorder.Duplicate, 0, 0},
		{69, none, reorder.Held, 0, 0},
		{70, none, reorder.Beyond, 0, 0},
	})
	if trk.Expected() != psn(5) {
		t.Errorf("rcv_nxt is %v", trk.Expected())
	}
	if n, bits := trk.Footprint(), trk.Bitmap(); n != 17 || bits != 16 {
		t.Errorf("footprint %d, %d of bits, want 17 and 16 for L = 64", n, bits)
	}
}

// TestMPRDMAFeedback: every packet is answered by its PSN; NACK for what overflows the
// bitmap (3.5) and for a synchronise operation that comes early (3.4).
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
	trk.Receive(psn(100), none)
	answer("in order", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})
	trk.Receive(psn(105), none)
	answer("ahead", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(105)})
	trk.Receive(psn(166), none)
	answer("overflow", reorder.Feedback{Expected: psn(101), Gap: true, HasSACK: true, SACK: psn(166), Refused: true})
	trk.Receive(psn(100), none)
	answer("again", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})

	// A synchronise operation of packets 102 to 104.
	if !trk.Early(psn(102)) || trk.Early(psn(101)) {
		t.Error("only what has something missing before it is early")
	}
	trk.Refuse(psn(103))
	answer("early", reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(103), Refused: true})
	trk.Receive(psn(101), none)
	if trk.Early(psn(102)) {
		t.Error("nothing is missing before it any more")
	}
	if v, _ := trk.Receive(psn(103), none); v != reorder.Held {
		t.Errorf("its packets among themselves may be out of order: %d", v)
	}
}

// model is what a tracker must do, with a map of all PSNs that have been accepted,
// counted from the first one without an end.
type model struct {
	next     int
	accepted map[int]bool
}

// receive accepts packet n and returns by how many the next one moves and how many
// messages that releases.
func (m *model) receive(n int, ends bool) (advanced, released uint32) {
	m.accepted[n] = ends
	for {
		ends, ok := m.accepted[m.next]
		if !ok {
			return advanced, released
		}
		m.next++
		advanced++
		if ends {
			released++
		}
	}
}

// free reports whether packet n has not been accepted.
func (m *model) free(n int) bool {
	_, ok := m.accepted[n]
	return !ok && n >= m.next
}

// TestMPRDMAModel compares with a map.
func TestMPRDMAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 70).Draw(t, "L")
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		trk := reorder.NewMPRDMA(length)
		trk.Reset(psn(first))
		m := model{accepted: map[int]bool{}}
		for range rapid.IntRange(0, 300).Draw(t, "packets") {
			n := m.next + rapid.IntRange(-3, length+2).Draw(t, "ahead")
			ends := rapid.Bool().Draw(t, "ends")
			want := reorder.Held
			switch {
			case n == m.next:
				want = reorder.InOrder
			case !m.free(n):
				want = reorder.Duplicate
			case n > m.next+length:
				want = reorder.Beyond
			}
			var advanced, released uint32
			if want == reorder.InOrder || want == reorder.Held {
				advanced, released = m.receive(n, ends)
			}
			p := psn(first + uint32(n))
			if v := trk.Classify(p); v != want {
				t.Fatalf("%d: classified %d, want %d", n, v, want)
			}
			v, got := trk.Receive(p, ends)
			if r := trk.Released(); v != want || got != advanced || r != released {
				t.Fatalf("%d: %d, %d, %d, want %d, %d, %d", n, v, got, r, want, advanced, released)
			}
			f := reorder.Feedback{Expected: psn(first + uint32(m.next)), HasSACK: true, SACK: p, Gap: v == reorder.Beyond, Refused: v == reorder.Beyond}
			if trk.Expected() != f.Expected || said(trk) != f {
				t.Fatalf("%d: %+v, want %+v", n, said(trk), f)
			}
		}
	})
}
