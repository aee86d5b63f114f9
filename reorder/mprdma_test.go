package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced/bth"
	"roced/reorder"
)

func psn(v uint32) bth.PSN { return bth.MakePSN(v) }

// arrival is a packet, and what a tracker is to make of it.
type arrival struct {
	psn      uint32
	span     uint32
	last     reorder.LastKind
	verdict  reorder.Verdict
	advanced uint32
	released reorder.Released
}

const (
	none     = reorder.NotLast
	tail     = reorder.Last
	complete = reorder.LastWithCompletion
)

// play lets packets arrive and compares.
func play(t *testing.T, trk reorder.Releaser, script []arrival) {
	t.Helper()
	for i, c := range script {
		p := psn(c.psn)
		if v := trk.Classify(p); v != c.verdict && c.span == 1 {
			t.Errorf("%d: Classify(%v) = %d, want %d", i, p, v, c.verdict)
		}
		if v, n := trk.Receive(p, c.span, c.last); v != c.verdict || n != c.advanced {
			t.Errorf("%d: Receive(%v) = %d, %d, want %d, %d", i, p, v, n, c.verdict, c.advanced)
		}
		if r := trk.Released(); r != c.released {
			t.Errorf("%d: %v releases %+v, want %+v", i, p, r, c.released)
		}
		if r := trk.Released(); r != (reorder.Released{}) {
			t.Errorf("%d: released twice: %+v", i, r)
		}
	}
}

// TestMPRDMABitmap has the states of section 3.3, over the end of the PSNs and of the
// ring.
func TestMPRDMABitmap(t *testing.T) {
	trk := reorder.NewMPRDMA(64)
	trk.Reset(psn(0xfffffe))
	play(t, trk, []arrival{
		{0xfffffe, 1, none, reorder.InOrder, 1, reorder.Released{}},
		{0xfffffe, 1, none, reorder.Duplicate, 0, reorder.Released{}},
		{1, 1, complete, reorder.Held, 0, reorder.Released{}},
		{1, 1, complete, reorder.Duplicate, 0, reorder.Released{}},
		{0, 1, none, reorder.Held, 0, reorder.Released{}},
		{2, 1, tail, reorder.Held, 0, reorder.Released{}},
		{4, 1, complete, reorder.Held, 0, reorder.Released{}},
		// rcv_nxt + L is tracked, what is larger is dropped.
		{0xffffff + 64, 1, tail, reorder.Held, 0, reorder.Released{}},
		{0xffffff + 65, 1, tail, reorder.Beyond, 0, reorder.Released{}},
		{0xffffff + 64, 1, tail, reorder.Duplicate, 0, reorder.Released{}},
		// The messages up to 2 are complete at once, that of 4 is not yet.
		{0xffffff, 1, tail, reorder.InOrder, 4, reorder.Released{Messages: 3, Completions: 1}},
		{3, 1, none, reorder.InOrder, 2, reorder.Released{Messages: 1, Completions: 1}},
		{4, 1, complete, reorder.Duplicate, 0, reorder.Released{}},
		{69, 1, none, reorder.Held, 0, reorder.Released{}},
		{70, 1, none, reorder.Beyond, 0, reorder.Released{}},
	})
	if trk.Expected() != psn(5) {
		t.Errorf("rcv_nxt is %v", trk.Expected())
	}
	if n := trk.Footprint(); n != 17 {
		t.Errorf("footprint %d, want 17 for L = 64", n)
	}
}

// TestMPRDMASpans has READ requests, which occupy as many PSNs as they have responses.
func TestMPRDMASpans(t *testing.T) {
	trk := reorder.NewMPRDMA(8)
	trk.Reset(psn(0))
	play(t, trk, []arrival{
		{2, 3, tail, reorder.Held, 0, reorder.Released{}},
		{3, 1, none, reorder.Duplicate, 0, reorder.Released{}},
		{1, 2, tail, reorder.Beyond, 0, reorder.Released{}}, // overlaps
		{6, 4, tail, reorder.Beyond, 0, reorder.Released{}}, // too long
		{6, 3, tail, reorder.Held, 0, reorder.Released{}},   // up to rcv_nxt + L
		{0, 2, complete, reorder.InOrder, 5, reorder.Released{Messages: 2, Completions: 1}},
		{5, 1 << 23, tail, reorder.InOrder, 1 << 23, reorder.Released{Messages: 1}},
		{7 + 1<<23, 1, none, reorder.Held, 0, reorder.Released{}},
		{5 + 1<<23, 1, none, reorder.InOrder, 1, reorder.Released{}},
		{6 + 1<<23, 1, none, reorder.InOrder, 2, reorder.Released{}},
	})
}

// TestMPRDMAFeedback: every packet is answered by its PSN; NACK for what overflows the
// bitmap (3.5) and for a synchronise operation that comes early (3.4).
func TestMPRDMAFeedback(t *testing.T) {
	trk := reorder.NewMPRDMA(64)
	trk.Reset(psn(100))
	if f := trk.Feedback(); f != (bth.Feedback{Expected: psn(100)}) {
		t.Errorf("before all packets: %+v", f)
	}
	answer := func(what string, want bth.Feedback) {
		t.Helper()
		if f := trk.Feedback(); f != want {
			t.Errorf("%s: %+v, want %+v", what, f, want)
		}
	}
	trk.Receive(psn(100), 1, none)
	answer("in order", bth.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})
	trk.Receive(psn(105), 1, none)
	answer("ahead", bth.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(105)})
	trk.Receive(psn(166), 1, none)
	answer("overflow", bth.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(166), Refused: true})
	trk.Receive(psn(100), 1, none)
	answer("again", bth.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(100)})

	// A synchronise operation of packets 102 to 104.
	if !trk.Early(psn(102)) || trk.Early(psn(101)) {
		t.Error("only what has something missing before it is early")
	}
	trk.Refuse(psn(103))
	answer("early", bth.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(103), Refused: true})
	trk.Receive(psn(101), 1, none)
	if trk.Early(psn(102)) {
		t.Error("nothing is missing before it any more")
	}
	if v, _ := trk.Receive(psn(103), 1, none); v != reorder.Held {
		t.Errorf("its packets among themselves may be out of order: %d", v)
	}
}

// model is what a tracker must do, with a map of all PSNs that have been accepted,
// counted from the first one without an end.
type model struct {
	next     int
	accepted map[int]reorder.LastKind
}

// receive accepts packet n and returns by how many the next one moves and what that
// releases.
func (m *model) receive(n, span int, last reorder.LastKind) (advanced uint32, out reorder.Released) {
	for k := range span - 1 {
		m.accepted[n+k] = none
	}
	m.accepted[n+span-1] = last
	for {
		kind, ok := m.accepted[m.next]
		if !ok {
			return advanced, out
		}
		m.next++
		advanced++
		if kind != none {
			out.Messages++
		}
		if kind == complete {
			out.Completions++
		}
	}
}

// free reports whether none of the packets has been accepted.
func (m *model) free(n, span int) bool {
	for k := range span {
		if _, ok := m.accepted[n+k]; ok || n+k < m.next {
			return false
		}
	}
	return true
}

var kinds = []reorder.LastKind{none, tail, complete}

// TestMPRDMAModel compares with a map.
func TestMPRDMAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 70).Draw(t, "L")
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		trk := reorder.NewMPRDMA(length)
		trk.Reset(psn(first))
		m := model{accepted: map[int]reorder.LastKind{}}
		for range rapid.IntRange(0, 300).Draw(t, "packets") {
			n := m.next + rapid.IntRange(-3, length+2).Draw(t, "ahead")
			span := rapid.SampledFrom([]int{1, 1, 1, 2, 9}).Draw(t, "span")
			last := rapid.SampledFrom(kinds).Draw(t, "kind")
			want := reorder.Held
			switch {
			case n == m.next:
				want = reorder.InOrder
				for k := range span { // what a READ in order covers is its own
					delete(m.accepted, n+k)
				}
			case !m.free(n, 1):
				want = reorder.Duplicate
			case n+span-1 > m.next+length, !m.free(n, span):
				want = reorder.Beyond
			}
			var advanced uint32
			var released reorder.Released
			if want == reorder.InOrder || want == reorder.Held {
				advanced, released = m.receive(n, span, last)
			}
			p := psn(first + uint32(n))
			if v := trk.Classify(p); span == 1 && v != want {
				t.Fatalf("%d: classified %d, want %d", n, v, want)
			}
			v, got := trk.Receive(p, uint32(span), last)
			if r := trk.Released(); v != want || got != advanced || r != released {
				t.Fatalf("%d: %d, %d, %+v, want %d, %d, %+v", n, v, got, r, want, advanced, released)
			}
			f := bth.Feedback{Expected: psn(first + uint32(m.next)), HasSACK: true, SACK: p, Refused: v == reorder.Beyond}
			if trk.Expected() != f.Expected || trk.Feedback() != f {
				t.Fatalf("%d: %+v, want %+v", n, trk.Feedback(), f)
			}
		}
	})
}
