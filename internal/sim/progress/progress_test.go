package progress

import (
	"testing"
	"time"
)

// run calls Left each second of a fake clock. speed returns the completed part per second.
func run(seconds int, speed func(second int) float64) (left []time.Duration, known []bool, parts []float64) {
	var e Estimate
	now, part := time.Unix(1e9, 0), 0.0
	for s := range seconds {
		l, ok := e.Left(now, part)
		left, known, parts = append(left, l), append(known, ok), append(parts, part)
		now = now.Add(time.Second)
		part += speed(s)
	}
	return left, known, parts
}

// TestSteady: at a constant speed the estimate is exact from the second call on.
func TestSteady(t *testing.T) {
	left, known, _ := run(1000, func(int) float64 { return 0.001 })
	for s := range left {
		if want := time.Duration(1000-s) * time.Second; known[s] != (s > 0) || s > 0 && (left[s]-want).Abs() > time.Second {
			t.Fatalf("second %d: %v, %t, want %v", s, left[s], known[s], want)
		}
	}
}

// TestRecentSpeed: the estimate is right soon after the speed has fallen to a quarter.
func TestRecentSpeed(t *testing.T) {
	left, _, parts := run(600, func(s int) float64 {
		if s < 400 {
			return 0.001
		}
		return 0.00025
	})
	for _, s := range []int{460, 500, 599} { // half of the window is at most 75 s
		if truth := (1 - parts[s]) / 0.00025; left[s].Seconds() < 0.99*truth || left[s].Seconds() > 1.1*truth {
			t.Errorf("second %d: %v, in truth %.0f s", s, left[s], truth)
		}
	}
}

// TestSlowing: while a run gets slower, the estimate never falls.
func TestSlowing(t *testing.T) {
	left, known, _ := run(2000, func(s int) float64 { return 0.0008 / (1 + float64(s)/1000) })
	for s := 2; s < len(left); s++ {
		if !known[s] || left[s] < left[s-1] {
			t.Fatalf("second %d: %v after %v", s, left[s], left[s-1])
		}
	}
}

// TestFaster: the estimate is right soon after the speed has risen, and never below the truth.
func TestFaster(t *testing.T) {
	left, _, parts := run(300, func(s int) float64 {
		if s < 100 {
			return 0.001
		}
		return 0.004
	})
	if truth := (1 - parts[250]) / 0.004; left[250].Seconds() > 1.05*truth {
		t.Errorf("%v, in truth %.0f s", left[250], truth)
	}
	for s := 100; s < 300; s++ {
		if truth := (1 - parts[s]) / 0.004; left[s].Seconds() < truth-1 {
			t.Fatalf("second %d: %v, in truth %.0f s", s, left[s], truth)
		}
	}
}

// TestStopped: without progress there is no estimate. When it resumes, there is one.
func TestStopped(t *testing.T) {
	_, known, _ := run(200, func(s int) float64 {
		if s >= 50 && s < 120 {
			return 0
		}
		return 0.001
	})
	if !known[50] || known[119] || !known[122] {
		t.Errorf("before %t, stopped %t, after %t", known[50], known[119], known[122])
	}
}

// TestLong: an estimate has an end.
func TestLong(t *testing.T) {
	left, known, _ := run(2, func(int) float64 { return 1e-300 })
	if !known[1] || left[1] <= 0 {
		t.Errorf("%v, %t", left[1], known[1])
	}
}
