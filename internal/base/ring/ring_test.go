package ring

import (
	"testing"

	"pgregory.net/rapid"
)

// TestModel compares a ring with a slice, for any numbers, including their wrap.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.SampledFrom([]uint32{0, 5, 1<<32 - 3}).Draw(t, "first")
		r, model := Ring[int]{Head: first, Tail: first}, []int(nil)
		for i := range 200 {
			if rapid.IntRange(0, 2).Draw(t, "pop") == 0 && len(model) > 0 {
				model = model[1:]
				r.Head++
			} else {
				*r.Push(), model = i, append(model, i)
			}
			if r.Len() != len(model) || len(r.slots) > 256 {
				t.Fatalf("%d elements in %d slots, want %d", r.Len(), len(r.slots), len(model))
			}
			for k, want := range model {
				if got := *r.At(r.Head + uint32(k)); got != want {
					t.Fatalf("element %d is %d, want %d", k, got, want)
				}
			}
			if o := r.Oldest(); (o == nil) != (len(model) == 0) || o != nil && *o != model[0] {
				t.Fatalf("oldest %v of %v", o, model)
			}
		}
		if r.Clear(); r.Len() != 0 || r.Oldest() != nil {
			t.Fatal("not empty")
		}
		if n := testing.AllocsPerRun(1, func() { *r.Push() = 1; r.Head++ }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
	})
}
