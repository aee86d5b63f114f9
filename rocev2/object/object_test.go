package object

import "testing"

// TestTableStaysSmall: the table reuses places, so that churn does not make it grow.
func TestTableStaysSmall(t *testing.T) {
	tab := Table[int]{Limit: 1 << 20}
	for range 10000 {
		i, _ := tab.Add(new(int))
		tab.Remove(i)
	}
	if len(tab.slots) > tableRest+3 {
		t.Errorf("%d places for one object", len(tab.slots))
	}
}

// TestTableModel compares a table with a map and checks when it reuses places.
func TestTableModel(t *testing.T) {
	tab := Table[int]{Limit: 1000}
	first, _ := tab.Add(new(int))
	tab.Remove(first)
	if again, _ := tab.Add(new(int)); again == first {
		t.Error("a place is used again at once")
	} else {
		tab.Remove(again)
	}
	model := make(map[uint32]*int)
	rng := uint32(1)
	for step := range 20000 {
		rng = rng*1664525 + 1013904223
		if rng>>31 == 0 {
			i, ok := tab.Add(&step)
			if ok != (len(model) < 1000) || ok && (i == 0 || i > 1000 || model[i] != nil) {
				t.Fatalf("place %d, %v, with %d", i, ok, len(model))
			}
			if ok {
				model[i] = &step
			}
		} else if i := rng>>8%1000 + 1; model[i] != nil {
			delete(model, i)
			tab.Remove(i)
		}
		n := 0
		if step%100 == 0 {
			for range tab.All {
				n++
			}
			if n != len(model) || tab.Live != n {
				t.Fatalf("%d objects, want %d", n, len(model))
			}
		}
	}
	for i := range uint32(1100) {
		if tab.Get(i) != model[i] {
			t.Errorf("place %d", i)
		}
	}
}
