package sched

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// TestBucket: after a pause the bucket gives its burst and the frame that exceeds it, never more. The long-term rate is exact,
// also with a fraction of a nanosecond for each frame.
func TestBucket(t *testing.T) {
	const rate, size, burst, frames = 7_777_777_777, 1106, 10 * 1106, 1_000_000
	var b Bucket
	if !b.Ready(0) {
		t.Fatal("the zero bucket has a limit")
	}
	b.Charge(0, 1<<20)
	b.SetRate(rate, burst)
	send := func(now mono.Time) (sent int) {
		for b.Ready(now) {
			b.Charge(now, size)
			sent++
		}
		return sent
	}
	for _, at := range []time.Duration{time.Second, time.Hour} {
		if n := send(mono.Time(at)); n != 11 {
			t.Fatalf("%d frames at once after a pause, want 11", n)
		}
	}
	start := b.Next()
	for range frames {
		b.Charge(b.Next(), size)
	}
	want := start + mono.Time(frames*size*8*1_000_000_000/rate)
	if d := b.Next() - want; d < -2 || d > 2 {
		t.Errorf("next frame at %d, want %d", b.Next(), want)
	}
	b.SetRate(0, 0)
	if !b.Ready(start) {
		t.Error("a limit after it has been taken away")
	}
}
