package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/internal/base/chart"
)

// TestPauses checks that a pause is long compared with the time left without longer pauses and with the median.
func TestPauses(t *testing.T) {
	const ms = time.Millisecond
	even := func(from, to time.Duration) (at []time.Duration) {
		for ; from <= to; from += ms {
			at = append(at, from)
		}
		return at
	}
	for _, c := range []struct {
		at   []time.Duration
		want string
	}{
		{nil, "[]"},
		{[]time.Duration{5}, "[]"},
		{[]time.Duration{5, 5, 5}, "[]"},
		{even(0, 100*ms), "[]"},
		{append(even(0, 10*ms), even(80*ms, 90*ms)...), "[{10ms 70ms}]"},
		{append(even(0, 10*ms), even(29*ms, 40*ms)...), "[]"}, // shorter than twenty median pauses
		{slices.Concat(even(0, 10*ms), even(80*ms, 90*ms), even(time.Hour, time.Hour+10*ms)), "[{10ms 70ms} {90ms 59m59.91s}]"},
	} {
		if got := fmt.Sprint(pauses(c.at)); got != c.want {
			t.Errorf("%v: %s, want %s", c.at, got, c.want)
		}
	}
}

// TestAxis checks that instants keep their order on an axis with pauses and fill it.
func TestAxis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := []time.Duration{0}
		for _, d := range rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, 1, 1000, 2000, 1e6, 1e9, 1e12}), 1, 60).Draw(t, "steps") {
			at = append(at, at[len(at)-1]+d)
		}
		until := max(at[len(at)-1], time.Microsecond)
		axis := chart.Time(until, pauses(at))
		x := func(at time.Duration) float64 { return axis.Place(float64(at)) * chart.PlotWidth }
		for i := range at {
			if x(at[i]) < 0 || x(at[i]) > chart.PlotWidth+0.01 || i > 0 && x(at[i]) < x(at[i-1])-1e-9 {
				t.Fatalf("%v is at %v, %v at %v", at[i], x(at[i]), at[max(i-1, 0)], x(at[max(i-1, 0)]))
			}
		}
		if x(until) < chart.PlotWidth-0.01 {
			t.Fatalf("the end is at %v", x(until))
		}
	})
}

// TestToScale checks that a picture shortens and labels a pause, unless time is to scale.
func TestToScale(t *testing.T) {
	for _, toScale := range []bool{false, true} {
		dir := t.TempDir()
		if _, err := load(t).Draw(dir, toScale); err != nil {
			t.Fatal(err)
		}
		svg, err := os.ReadFile(filepath.Join(dir, "trace-sequence.svg"))
		if err != nil {
			t.Fatal(err)
		}
		if named := bytes.Contains(svg, []byte(" idle</text>")); named == toScale {
			t.Errorf("to scale %v, a pause is named: %v", toScale, named)
		}
		if labels := strings.Count(string(svg), "ms</text>"); labels < 4 || labels > 20 {
			t.Errorf("to scale %v: %d labels of time", toScale, labels)
		}
	}
}
