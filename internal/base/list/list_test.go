package list

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestModel compares a list with a slice.
func TestModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	nodes := make([]Node[int], 20)
	for i := range nodes {
		nodes[i].Item = i
	}
	var l List[int]
	var want []int
	for range 5000 {
		n := &nodes[rng.IntN(len(nodes))]
		at := slices.Index(want, n.Item)
		if n.Listed() != (at >= 0) {
			t.Fatalf("node %d: listed %v, want %v", n.Item, n.Listed(), at >= 0)
		}
		if at < 0 && rng.IntN(2) == 0 {
			l.PushBack(n)
			want = append(want, n.Item)
		} else {
			n.Remove()
			if at >= 0 {
				want = slices.Delete(want, at, at+1)
			}
		}
		var got, back []int
		for n := l.First(); n != nil; n = n.next {
			got = append(got, n.Item)
		}
		for n := l.tail; n != nil; n = n.prev {
			back = append(back, n.Item)
		}
		slices.Reverse(back)
		if !slices.Equal(got, want) || !slices.Equal(back, want) {
			t.Fatalf("%v and %v, want %v", got, back, want)
		}
	}
}
