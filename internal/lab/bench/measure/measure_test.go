package measure

import (
	"slices"
	"testing"
)

// TestAlternate: each round reverses the order of the one before, and each case keeps its samples.
func TestAlternate(t *testing.T) {
	var order []int
	all, err := Alternate(3, 2, func(i int) (int, error) {
		order = append(order, i)
		return 10*i + len(order), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 1, 1, 0, 0, 1}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	for i, want := range [][]int{{1, 4, 5}, {12, 13, 16}} {
		if !slices.Equal(all[i], want) {
			t.Errorf("samples of case %d: %v, want %v", i, all[i], want)
		}
	}
}
