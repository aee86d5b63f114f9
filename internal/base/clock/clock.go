// Package clock reads CLOCK_MONOTONIC, the clock that the daemon and its client programs share, without a system call.
package clock

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
)

// origin is one instant on the clock of the Go runtime and on CLOCK_MONOTONIC, which run at the same rate.
var origin = calibrate()

type instant struct {
	at   time.Time
	mono mono.Time
}

// tries is the number of readings of both clocks, of which the closest pair counts. An interruption between the two readings
// would offset all later results.
const tries = 16

func calibrate() (best instant) {
	least := time.Duration(math.MaxInt64)
	for range tries {
		var ts unix.Timespec
		before := time.Now()
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			panic("clock: CLOCK_MONOTONIC: " + err.Error()) // every Linux has it
		}
		if d := time.Since(before); d < least {
			least = d
			best = instant{at: before.Add(d / 2), mono: mono.Time(ts.Nano())}
		}
	}
	return best
}

// Now returns the time since boot, without suspended time.
func Now() mono.Time { return origin.mono.Add(time.Since(origin.at)) }

// Wall returns t as time of day, by the present setting of the system's time of day.
func Wall(t mono.Time) time.Time {
	now := time.Now()
	return now.Add(t.Sub(origin.mono.Add(now.Sub(origin.at))))
}
