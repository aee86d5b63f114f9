package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/reorder"
)

// TestIRNBitmap checks the 2-bitmap of section 5.3.3 across the wrap of the PSNs and of the ring. MSN and completions
// advance only when all earlier packets have arrived.
func TestIRNBitmap(t *testing.T) {
	trk := reorder.NewIRN(110, false)
	trk.Reset(psn(0xfffffe))
	play(t, trk, []arrival{
		{0xfffffe, reorder.InOrder, 1},
		{0xfffffe, reorder.Duplicate, 0},
		{1, reorder.Held, 0},
		{1, reorder.Duplicate, 0},
		{0, reorder.Held, 0},
		{3, reorder.Held, 0},
		// The bitmap has the size of the BDP cap: 0xffffff to 108.
		{108, reorder.Held, 0},
		{109, reorder.Beyond, 0},
		{0xffffff, reorder.InOrder, 3},
		{2, reorder.InOrder, 2},
		{3, reorder.Duplicate, 0},
		{113, reorder.Held, 0},
		{114, reorder.Beyond, 0},
	})
	if trk.Expected() != psn(4) {
		t.Errorf("expected %v", trk.Expected())
	}
}

// TestIRNFeedback: every packet out of order triggers a NACK with the cumulative acknowledgement and the PSN of that
// packet (3.1).
func TestIRNFeedback(t *testing.T) {
	trk := reorder.NewIRN(110, false)
	trk.Reset(psn(100))
	nack := func(expected, sack uint32, refused bool) reorder.Feedback {
		return reorder.Feedback{Expected: psn(expected), Gap: true, HasSACK: true, SACK: psn(sack), Refused: refused}
	}
	for i, c := range []struct {
		psn  uint32
		want reorder.Feedback
	}{
		{100, reorder.Feedback{Expected: psn(101)}},
		{102, nack(101, 102, false)},
		{105, nack(101, 105, false)},
		{105, nack(101, 105, false)},
		{100, reorder.Feedback{Expected: psn(101)}},
		{101 + 110, nack(101, 211, true)},
		{101, reorder.Feedback{Expected: psn(103)}},
		{104, nack(103, 104, false)},
		{103, reorder.Feedback{Expected: psn(106)}},
	} {
		receive(trk, psn(c.psn))
		if f := said(trk); f != c.want {
			t.Errorf("%d: %+v, want %+v", i, f, c.want)
		}
	}
	trk.Commit(psn(110), reorder.Refused)
	if f := said(trk); f != nack(106, 110, true) {
		t.Errorf("refused: %+v", f)
	}
}

// TestIRNDiscards checks the receiver of the go-back-N variant (4.3): it drops packets out of order and sends a NACK.
func TestIRNDiscards(t *testing.T) {
	trk, err := reorder.New("irn", reorder.Params{"discard_out_of_order": 1})
	if err != nil {
		t.Fatal(err)
	}
	trk.Reset(psn(0))
	play(t, trk, []arrival{
		{1, reorder.Beyond, 0},
		{0, reorder.InOrder, 1},
		{1, reorder.InOrder, 1},
	})
}

// TestIRNModel compares the tracker with a map.
func TestIRNModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(1, 140).Draw(t, "BDP cap")
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		trk := reorder.NewIRN(length, false)
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
			case n >= m.next+length:
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
			f := reorder.Feedback{Expected: psn(first + uint32(m.next))}
			if v != reorder.InOrder && n > m.next {
				f.Gap, f.HasSACK, f.SACK, f.Refused = true, true, p, v == reorder.Beyond
			}
			if trk.Expected() != f.Expected || said(trk) != f {
				t.Fatalf("%d: %+v, want %+v", n, said(trk), f)
			}
		}
	})
}

// TestIRNFootprint: the tracker needs two bits per packet of the cap for requests, one for responses.
func TestIRNFootprint(t *testing.T) {
	trk := reorder.NewIRN(110, false)
	trk.Reset(psn(0))
	receive(trk, psn(1))
	receive(trk, psn(2))
	if n := trk.Footprint(); n != 28+1 {
		t.Errorf("requests: %d bytes", n)
	}
	trk.TrackResponses()
	trk.Reset(psn(0))
	if n := trk.Footprint(); n != 14+1 {
		t.Errorf("responses: %d bytes", n)
	}
	if v := trk.Classify(psn(2)); v != reorder.Held {
		t.Errorf("after a reset: %d", v)
	}
}

// TestFactoriesOfIRNAndMELO: parameters have names and default to the papers' values.
func TestFactoriesOfIRNAndMELO(t *testing.T) {
	for _, c := range []struct {
		name string
		p    reorder.Params
		room int // packets ahead, including the expected one; 0: refused parameters
	}{
		{"irn", nil, 110},
		{"irn", reorder.Params{"bdp_packets": 7}, 7},
		{"irn", reorder.Params{"bdp_packets": 0}, 0},
		{"irn", reorder.Params{"bitmap": 1}, 0},
		{"melo", nil, 1024},
		{"melo", reorder.Params{"bdp_packets": 100}, 100},
		{"melo", reorder.Params{"bdp_packets": 100, "pool_bits": 64}, 64},
		{"melo", reorder.Params{"pool_bits": 9}, 0},
		{"melo", reorder.Params{"pool_bits": 0}, 0},
		{"melo", reorder.Params{"bdp_packets": 1.5}, 0},
		{"melo", reorder.Params{"blocks": 1}, 0},
	} {
		trk, err := reorder.New(c.name, c.p)
		if (err != nil) != (c.room == 0) {
			t.Errorf("%s %v: %v", c.name, c.p, err)
			continue
		}
		if err != nil {
			continue
		}
		trk.Reset(psn(0))
		if in, out := trk.Classify(psn(uint32(c.room-1))), trk.Classify(psn(uint32(c.room))); in != reorder.Held || out != reorder.Beyond {
			t.Errorf("%s %v: %d and %d, want room for %d", c.name, c.p, in, out, c.room)
		}
	}
}

// TestNoAllocation: the trackers allocate nothing per packet.
func TestNoAllocation(t *testing.T) {
	for _, name := range []string{"irn", "melo"} {
		trk, err := reorder.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		trk.Reset(psn(0xffff00))
		r, at, f := trk, psn(0xffff00), new(reorder.Feedback)
		n := testing.AllocsPerRun(200, func() {
			for _, k := range []int{1, 3, 20, 0, 2} {
				receive(r, at.Add(k))
				r.Feedback(f)
			}
			for k := 4; k < 20; k++ {
				receive(r, at.Add(k))
			}
			at = at.Add(21)
		})
		if n != 0 || r.Expected() != at {
			t.Errorf("%s: %v allocations, expected %v, want %v", name, n, r.Expected(), at)
		}
	}
}
