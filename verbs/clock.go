package verbs

import (
	"time"

	"roced.io/roced/internal/base/clock"
	"roced.io/roced/plugin/mono"
)

// Timestamp is an instant in nanoseconds on CLOCK_MONOTONIC, the clock of
// Context.Now.
type Timestamp int64

// Sub returns the time from u to t.
func (t Timestamp) Sub(u Timestamp) time.Duration { return time.Duration(t - u) }

// Wall returns t as time of day, by the present offset between the two clocks. So
// changes of the system's time of day since t also apply to t.
func (t Timestamp) Wall() time.Time { return clock.Wall(mono.Time(t)) }

// ClockAttr describes the clock of a device's time stamps (of ibv_device_attr_ex).
type ClockAttr struct {
	Mask uint64 // valid bits of a time stamp; zero if there are no time stamps
	KHz  uint64 // ticks per millisecond
	// Polled is true if the device takes no time stamps. WC.Time is then the time
	// at which CQ.Poll has found the completion.
	Polled bool
}

// QueryClock describes the clock of the device. That of roced counts nanoseconds in
// 64 bits.
func (c *Context) QueryClock() (ClockAttr, error) { return c.dev.clock() }

// Now reads the clock of WC.Time (ibv_query_rt_values_ex) without a system call.
func (c *Context) Now() Timestamp { return Timestamp(clock.Now()) }
