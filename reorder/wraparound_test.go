package reorder_test

import (
	"testing"

	"roced.io/roced/reorder"
)

// TestHalfCircle sends packets in swapped pairs, so that the tracker always tracks a packet. It covers more than half
// of the PSN circle: a stale PSN in the tracker must not look new.
func TestHalfCircle(t *testing.T) {
	for _, name := range reorder.Names() {
		if name == "strict" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trk, err := reorder.New(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			agent, _ := trk.(reorder.Agent)
			const first, n = 0xfffff0, 1<<23 + 1<<16
			trk.Reset(psn(first))
			arrive := func(i uint32, tail bool, want reorder.Verdict) {
				if agent != nil {
					agent.Announce(psn(first), tail)
				}
				if v, _ := receive(trk, psn(first+i)); v != want {
					t.Fatalf("packet %d: verdict %d, want %d", i, v, want)
				}
			}
			idle := trk.Footprint()
			arrive(1, true, reorder.Held) // LastSeq, passed long ago
			arrive(3, false, reorder.Held)
			for i := uint32(0); i < n; i += 2 {
				arrive(i, false, reorder.InOrder)
				if i%(1<<20) == 0 && trk.Expected() != psn(first+i+2) {
					t.Fatalf("packet %d: expected %v", i, trk.Expected())
				}
				arrive(i+5, false, reorder.Held)
			}
			for i := uint32(0); i < 6; i += 2 {
				arrive(n+i, false, reorder.InOrder)
			}
			if f := trk.Footprint(); f != idle || trk.Expected() != psn(first+n+5) {
				t.Errorf("%d bytes at the end, %d at the beginning; expected %v", f, idle, trk.Expected())
			}
		})
	}
}
