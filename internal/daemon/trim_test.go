package daemon

import "testing"

// TestTrim: after many allocations and then a calm interval, the trimmer frees memory, and only once.
func TestTrim(t *testing.T) {
	freed := 0
	trim := trimmer{free: func() { freed++ }}
	for i, c := range []struct {
		allocated uint64
		freed     int
	}{
		{trimAfter, 0}, // many allocations, but not calm
		{2 * trimAfter, 0},
		{2*trimAfter + trimCalm - 1, 1}, // calm
		{2*trimAfter + trimCalm + 9, 1}, // nothing to free
		{3*trimAfter + trimCalm, 1},
		{3*trimAfter + trimCalm + 9, 2},
	} {
		if trim.look(c.allocated); freed != c.freed {
			t.Errorf("look %d: given back %d times, want %d", i, freed, c.freed)
		}
	}
}
