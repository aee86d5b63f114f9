package inside

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Percentiles of a histogram are within one part in 32 of what sorting would tell, and never below it.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint64Range(0, 1<<50), 1, 50).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.add(v)
		}
		slices.Sort(values)
		d := h.describe()
		for part, got := range map[float64]float64{0.5: d.P50, 0.95: d.P95, 0.99: d.P99, 0.999: d.P999, 1: d.Max} {
			i := 0
			for float64(i+1) < part*float64(len(values)) {
				i++
			}
			want := float64(values[i])
			if got := got * 1e3; got < want-1e-3 || got > want*(1+1.0/perPower)+1 {
				t.Fatalf("of %v, %v are not above %v: %v", values, part, want, got)
			}
		}
	})
}
