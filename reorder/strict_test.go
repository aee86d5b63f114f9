package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

func TestStrict(t *testing.T) {
	s := reorder.NewStrict()
	s.Reset(bth.MakePSN(0xfffffe))
	for i, c := range []struct {
		psn      uint32
		span     uint32
		verdict  reorder.Verdict
		advanced uint32
		expected uint32
		gap      bool
	}{
		{0xfffffe, 1, reorder.InOrder, 1, 0xffffff, false},
		{0xfffffe, 1, reorder.Duplicate, 0, 0xffffff, false},
		{0, 1, reorder.Beyond, 0, 0xffffff, true},
		{0xfffffe, 9, reorder.Duplicate, 0, 0xffffff, true},
		{0xffffff, 3, reorder.InOrder, 3, 2, false}, // a READ across the wrap
		{1, 1, reorder.Duplicate, 0, 2, false},
		{2 + 1<<23, 1, reorder.Duplicate, 0, 2, false}, // half of the numbers behind
		{1 + 1<<23, 1, reorder.Beyond, 0, 2, true},
		{2, 1 << 23, reorder.InOrder, 1 << 23, 2 + 1<<23, false}, // 2 GiB at MTU 256
		{2, 1, reorder.Duplicate, 0, 2 + 1<<23, false},
	} {
		psn := bth.MakePSN(c.psn)
		if v := s.Classify(psn); v != c.verdict {
			t.Errorf("%d: Classify(%v) = %d, want %d", i, psn, v, c.verdict)
		}
		if c.verdict == reorder.InOrder {
			s.Advance(c.span)
		} else if v, n := receive(s, psn); v != c.verdict || n != c.advanced {
			t.Errorf("%d: receive(%v) = %d, %d", i, psn, v, n)
		}
		want := reorder.Feedback{Expected: bth.MakePSN(c.expected), Gap: c.gap}
		if s.Expected() != want.Expected || said(s) != want {
			t.Errorf("%d: expected %v, feedback %+v, want %+v", i, s.Expected(), said(s), want)
		}
	}
	if s.Footprint() != 3 {
		t.Errorf("footprint %d", s.Footprint())
	}
}

// TestStrictModel compares the tracker with the set of all accepted packets.
func TestStrictModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := reorder.NewStrict()
		next := bth.MakePSN(rapid.Uint32().Draw(t, "start"))
		s.Reset(next)
		accepted := map[bth.PSN]bool{}
		missing := false
		for range rapid.IntRange(0, 200).Draw(t, "packets") {
			psn := next.Add(rapid.IntRange(-8, 8).Draw(t, "offset"))
			span := rapid.Uint32Range(1, 5).Draw(t, "span")
			before := s.Classify(psn)
			v, n := receive(s, psn)
			switch {
			case psn == next:
				if v != reorder.InOrder || n != 1 {
					t.Fatalf("%v: %d, %d", psn, v, n)
				}
				s.Reset(psn)
				s.Advance(span)
				for k := range int(span) {
					accepted[psn.Add(k)] = true
				}
				next, missing = next.Add(int(span)), false
			case accepted[psn] || psn.Before(next):
				if v != reorder.Duplicate || n != 0 {
					t.Fatalf("%v: %d, %d", psn, v, n)
				}
			default:
				if v != reorder.Beyond || n != 0 {
					t.Fatalf("%v: %d, %d", psn, v, n)
				}
				missing = true
			}
			if before != v || said(s) != (reorder.Feedback{Expected: next, Gap: missing}) {
				t.Fatalf("%v: classified %d, received %d, %+v", psn, before, v, said(s))
			}
		}
	})
}

func TestFactories(t *testing.T) {
	for _, name := range reorder.Names() {
		tr, err := reorder.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		tr.Reset(bth.MakePSN(7))
		if v, n := receive(tr, bth.MakePSN(7)); v != reorder.InOrder || n != 1 || tr.Expected() != bth.MakePSN(8) {
			t.Errorf("%s: %d, %d", name, v, n)
		}
		if _, err := reorder.New(name, reorder.Params{"no such parameter": 1}); err == nil {
			t.Errorf("%s takes any parameter", name)
		}
	}
	var tr reorder.Tracker = reorder.NewStrict()
	psn, f := bth.MakePSN(0), new(reorder.Feedback)
	if n := testing.AllocsPerRun(100, func() {
		receive(tr, psn)
		tr.Feedback(f)
		psn = psn.Next()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
