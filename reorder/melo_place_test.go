package reorder

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
)

// TestMELOPlace: the PSN is the offset in the re-ordering buffer, across the end of the PSNs and
// of a buffer whose size is no power of two (MELO 3.2.2).
func TestMELOPlace(t *testing.T) {
	const packets = 100
	pool, err := bitpool.New(1024)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMELO(pool, packets)
	m.Reset(bth.MakePSN(0xfffff0))
	for range 32 { // received in order
		nxt := m.Expected()
		first := m.place(nxt)
		for i := range 2 * packets {
			if got := m.place(nxt.Add(i)); got != (first+i)%packets {
				t.Fatalf("expected %v: packet %d behind it is at %d, not at %d", nxt, i, got, (first+i)%packets)
			}
		}
		before := m.place(nxt.Add(1))
		if m.Receive(nxt, false); m.place(nxt.Add(1)) != before {
			t.Fatalf("the place of a packet moves when %v is received", nxt)
		}
	}
}
