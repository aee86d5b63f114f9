package inside

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// TestBitmaps: the mean covers time and hosts, for all state and for bitmaps alone.
func TestBitmaps(t *testing.T) {
	in := New(2)
	x := &end{in: in, host: 1}
	in.all = append(in.all, x)
	for _, e := range []struct {
		at            mono.Time
		bytes, bitmap int
	}{{100, 8, 0}, {200, 56, 2}, {300, 60, 6}, {350, 8, 0}} {
		x.Trace(e.at, qp.TraceEvent{Kind: qp.TraceFootprint, Bytes: e.bytes, Requests: e.bytes - 4, Bitmap: e.bitmap})
	}
	in.Finish(500)
	if b := in.Bitmaps(500e-9); b != (2*100+6*50)/500.0/2 {
		t.Errorf("%v bytes of bitmaps on a NIC", b)
	}
	if most, mean := in.State(); most != 60 || mean != (8*100+56*100+60*50+8*150)/400.0 {
		t.Errorf("%d and %v bytes of a connection", most, mean)
	}
	if most := in.StateOfRequests(); most != 56 {
		t.Errorf("%d bytes of requests", most)
	}
}

// TestHistogram: percentiles of a histogram are at most one part in 32 above those of sorting, and never below.
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
			if got := got * 1e3; math.Round(got) < want || got > want*(1+1.0/perPower)+1 {
				t.Fatalf("of %v, %v are not above %v: %v", values, part, want, got)
			}
		}
	})
}
