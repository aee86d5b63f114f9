package clock

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
)

// system reads CLOCK_MONOTONIC by a system call.
func system(t *testing.T) mono.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return mono.Time(ts.Nano())
}

// TestNow: a reading between two readings of the system's clock lies between them, except for the difference of the two
// clocks. The closest pair of readings bounds that difference.
func TestNow(t *testing.T) {
	for range 100 {
		before := system(t)
		now := Now()
		after := system(t)
		if slack := mono.Time(10 * time.Microsecond); now < before-slack || now > after+slack {
			t.Fatalf("%d is not between %d and %d", now, before, after)
		}
	}
}

func TestWall(t *testing.T) {
	before := time.Now().Round(0)
	at := Now()
	after := time.Now().Round(0)
	if w := Wall(at).Round(0); w.Before(before.Add(-time.Millisecond)) || w.After(after.Add(time.Millisecond)) {
		t.Errorf("%v is not between %v and %v", w, before, after)
	}
	if d := Wall(at.Add(time.Hour)).Sub(Wall(at)); d < time.Hour-time.Millisecond || d > time.Hour+time.Millisecond {
		t.Errorf("an hour is %v", d)
	}
}
