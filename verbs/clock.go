package verbs

import (
	"time"

	"roced.io/roced/internal/base/clock"
	"roced.io/roced/plugin/mono"
)

// ClockAttr describes the clock by which a device stamps completions (of ibv_device_attr_ex).
type ClockAttr struct {
	Mask uint64 // the bits of a time stamp that mean something; zero: there are no time stamps
	KHz  uint64 // ticks in a millisecond
	// Polled says that the device takes no time stamps: WC.Time is when CQ.Poll has found the completion, by the
	// software's clock, which may be long after it has completed.
	Polled bool
}

// QueryClock describes the clock of the device. That of roced counts nanoseconds in all bits.
func (c *Context) QueryClock() (ClockAttr, error) { return c.dev.clock() }

// Now reads the clock of WC.Time (ibv_query_rt_values_ex), without a system call.
func (c *Context) Now() mono.Time { return clock.Now() }

// WallClock is a WC.Time as time of day, by what the time of day is now: an instant before the
// system's clock was set is what that would have shown then.
func WallClock(t mono.Time) time.Time { return clock.Wall(t) }
