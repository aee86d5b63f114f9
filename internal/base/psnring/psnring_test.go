package psnring_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/psnring"
)

// TestBits slides a window along the PSNs, across their wrap, and compares with a map.
func TestBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 300).Draw(t, "window")
		b := psnring.Make(window)
		if n := int(b.Len()); n < window || n >= 2*max(window, 64) {
			t.Fatalf("%d bits for a window of %d", n, window)
		}
		first, set := bth.MakePSN(rapid.Uint32().Draw(t, "first")), map[bth.PSN]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			psn := first.Add(rapid.IntRange(0, window-1).Draw(t, "offset"))
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				b.Set(psn)
				set[psn] = true
			case 1:
				b.Clear(psn)
				delete(set, psn)
			default:
				b.Clear(first)
				delete(set, first)
				first = first.Next()
			}
			from, n := rapid.IntRange(0, window).Draw(t, "from"), uint32(0)
			for i := range window {
				psn := first.Add(i)
				if b.Has(psn) != set[psn] {
					t.Fatalf("%v: %v, want %v", psn, b.Has(psn), set[psn])
				}
				if i >= from && set[psn] {
					n++
				}
			}
			if got := b.Count(first.Add(from), uint32(window-from)); got != n {
				t.Fatalf("%d bits set, want %d", got, n)
			}
		}
	})
}
