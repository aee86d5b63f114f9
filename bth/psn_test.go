package bth_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

func TestPSNWrap(t *testing.T) {
	last := bth.MakePSN(0xffffff)
	if last.Next() != bth.MakePSN(0) || bth.MakePSN(0).Add(-1) != last {
		t.Error("0xffffff and 0 are not neighbours")
	}
	for _, c := range []struct {
		p, q uint32
		diff int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{5, 0xfffff8, 13},
		{0x7fffff, 0, 1<<23 - 1},
		{0x800000, 0, -1 << 23},
		{0, 0x800000, -1 << 23},
		{0x1000005, 5, 0},
	} {
		p, q := bth.MakePSN(c.p), bth.MakePSN(c.q)
		if d := p.Diff(q); d != c.diff {
			t.Errorf("%v - %v = %d, want %d", p, q, d, c.diff)
		}
		if p.Before(q) != (c.diff < 0) || p.After(q) != (c.diff > 0) {
			t.Errorf("order of %v and %v", p, q)
		}
	}
	if s := last.String(); s != "16777215" {
		t.Errorf("String %q", s)
	}
}

func TestPSNAddDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := bth.MakePSN(rapid.Uint32().Draw(t, "p"))
		n := rapid.IntRange(-1<<23, 1<<23-1).Draw(t, "n")
		q := p.Add(n)
		if q.Diff(p) != n || q.Since(p) != uint32(n)&(1<<24-1) || q.Add(-n) != p || q.Uint32() >= 1<<24 {
			t.Fatalf("%v + %d = %v, difference %d", p, n, q, q.Diff(p))
		}
	})
}
