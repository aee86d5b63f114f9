package object

import (
	"math/rand/v2"
	"testing"
)

// TestIndexModel compares an index with a map.
func TestIndexModel(t *testing.T) {
	var x Index[int]
	x.Init(rand.NewChaCha8([32]byte{1}))
	model := make(map[uint32]*int)
	rng := rand.New(rand.NewPCG(1, 2))
	var live []uint32
	for step := range 20000 {
		if len(live) == 0 || rng.IntN(5) > 1 {
			i, _ := x.Add(&step)
			if i == 0 || i > indexMask || model[i] != nil {
				t.Fatalf("index %#x", i)
			}
			model[i], live = &step, append(live, i)
		} else {
			k := rng.IntN(len(live))
			x.Remove(live[k])
			delete(model, live[k])
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		if x.Used != len(model) || 2*x.Used > len(x.slots) {
			t.Fatalf("used %d of %d, want %d", x.Used, len(x.slots), len(model))
		}
	}
	for _, i := range live {
		if x.Get(i) != model[i] {
			t.Fatalf("index %#x lost", i)
		}
	}
}

// TestIndexChains creates colliding indices, because random ones rarely collide.
func TestIndexChains(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var x Index[uint32]
		x.Init(rand.NewChaCha8([32]byte{}))
		var live []uint32
		for len(live) < 24 {
			// Homes around the end of the table, so that chains wrap around.
			i := rng.Uint32() & indexMask
			if at := x.home(i); at >= 2 && at < 60 || x.Get(i) != nil {
				continue
			}
			x.Put(i, &i)
			live = append(live, i)
		}
		rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for len(live) > 0 {
			gone := live[0]
			x.Remove(gone)
			live = live[1:]
			if x.Get(gone) != nil {
				t.Fatalf("index %#x is still there", gone)
			}
			for _, i := range live {
				if v := x.Get(i); v == nil || *v != i {
					t.Fatalf("index %#x lost", i)
				}
			}
		}
	}
}
