// Package clock reads the clock that daemon and programs have in common, CLOCK_MONOTONIC, so that
// an instant which one of them names means something to the other. It costs no system call.
package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
)

// origin is an instant on the clocks of the Go runtime and of the system, which run alike.
var origin = calibrate()

type instant struct {
	at   time.Time
	mono mono.Time
}

// tries is how often both clocks are read, of which the closest pair counts: a process that is
// interrupted in between would be wrong for as long as it lives.
const tries = 16

func calibrate() (best instant) {
	least := time.Duration(math.MaxInt64)
	for range tries {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			panic("clock: CLOCK_MONOTONIC: " + err.Error()) // each Linux has it
		}
		if d := time.Since(before); d < least {
			least = d
			best = instant{at: before.Add(d / 2), mono: mono.Time(ts.Nano())}
		}
	}
	return best
}

// Now is the time since the system has booted, without what it slept.
func Now() mono.Time { return origin.mono.Add(time.Since(origin.at)) }

// Wall is t as time of day: by what the time of day is now, if it has been set since.
func Wall(t mono.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(origin.mono.Add(now.Sub(origin.at))))
}
