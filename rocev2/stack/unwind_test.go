package stack

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// TestUnwind changes a word of a packet and finds the change from the ICRCs.
func TestUnwind(t *testing.T) {
	u := newUnwinder()
	rapid.Check(t, func(t *rapid.T) {
		b := make([]byte, 4*rapid.IntRange(1, 16000).Draw(t, "words"))
		for i := range b {
			b[i] = byte(i*7 ^ i>>8)
		}
		at := 4 * rapid.IntRange(0, len(b)/4-1).Draw(t, "at")
		word := rapid.Uint32().Draw(t, "word")
		was := bth.ICRCUpdate(0, b)
		binary.LittleEndian.PutUint32(b[at:], binary.LittleEndian.Uint32(b[at:])^word)
		diff := was ^ bth.ICRCUpdate(0, b)
		dist := len(b) - at
		if got, ok := u.Word(diff, dist); !ok || got != word {
			t.Fatalf("%d of %d bytes: %08x, want %08x", at, len(b), got, word)
		}
		if got := bth.ICRCDelta(word, dist); got != diff {
			t.Fatalf("%d of %d bytes: difference %08x, want %08x", at, len(b), got, diff)
		}
	})
	for _, dist := range []int{-4, 0, 3, 5, 1 << 16} {
		if _, ok := u.Word(1, dist); ok {
			t.Errorf("a word %d bytes before the ICRC", dist)
		}
	}
}

// BenchmarkUnwind measures the cost of a packet with an unexpected IP ID.
func BenchmarkUnwind(b *testing.B) {
	u := newUnwinder()
	for b.Loop() {
		u.Word(0x12345678, 4120)
	}
}
