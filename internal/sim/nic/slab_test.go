package nic

import "testing"

// TestSharedSlab: a part gets back the packets that another part frees, each once. Otherwise traffic in one direction
// would need more and more memory.
func TestSharedSlab(t *testing.T) {
	chunks := make([][]parcel, 64)
	slabs := make([]slab, 2)
	for i := range slabs {
		slabs[i].share(chunks, i, 2)
	}
	a, b := &slabs[0], &slabs[1]
	for range 50 {
		seen := map[uint32]bool{}
		for range 700 {
			ref, _ := a.take()
			if seen[ref] || a.at(ref) != b.at(ref) {
				t.Fatalf("packet %d is in use", ref)
			}
			seen[ref] = true
		}
		for ref := range seen {
			b.free(ref)
		}
		for i := range slabs {
			slabs[i].window ^= 1
			slabs[i].reclaim(&slabs[1-i])
		}
	}
	if a.used+b.used != 0 || a.own > 2*2 || b.own != 1 {
		t.Errorf("%d packets are left; the next own chunks are %d and %d", a.used+b.used, a.own, b.own)
	}
}
