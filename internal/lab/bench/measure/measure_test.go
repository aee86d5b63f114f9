package measure

import (
	"slices"
	"testing"
	"time"
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

// TestSteady: samples of a slow or busy machine are repeated, and counted. If none is good, the last one is noisy.
func TestSteady(t *testing.T) {
	for _, c := range []struct {
		name     string
		work     []time.Duration // before and after each sample
		busy     []float64
		repeated int
		noisy    bool
	}{
		{"quiet", []time.Duration{10, 11}, []float64{0}, 0, false},
		{"slow once", []time.Duration{10, 21, 10, 10}, []float64{0, 0}, 1, false},
		{"busy once", []time.Duration{10, 10, 10, 10}, []float64{1, 0}, 1, false},
		{"always busy", []time.Duration{10, 10, 10, 10, 10, 10, 10, 10}, []float64{1, 1, 1, 1}, 3, true},
	} {
		samples := 0
		m := &Machine{
			work: func() (d time.Duration) { d, c.work = c.work[0], c.work[1:]; return d },
			busy: func() (p float64, err error) { p, c.busy = c.busy[0], c.busy[1:]; return p, nil },
		}
		v, repeated, noisy, err := Steady(m, func() (int, error) { samples++; return samples, nil })
		if v != samples || repeated != c.repeated || samples != c.repeated+1 || noisy != c.noisy || err != nil {
			t.Errorf("%s: sample %d of %d, %d repeated, noisy %v, %v", c.name, v, samples, repeated, noisy, err)
		}
	}
}

// TestMachine: the real measurements of the machine have values.
func TestMachine(t *testing.T) {
	m := NewMachine()
	if p, err := m.busy(); err != nil || p < 0 {
		t.Errorf("%v processors in use, %v", p, err)
	}
	if m.work() <= 0 {
		t.Error("the work takes no time")
	}
}
