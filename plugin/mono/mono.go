// Package mono is the time base of the transport core: nanoseconds on a monotonic clock that the caller reads. The daemon
// derives it from CLOCK_MONOTONIC, the simulator and the tests from a virtual clock.
//
// The API of this package is stable: releases of one major version only add to it.
package mono

import "time"

// Time is an instant in nanoseconds since an arbitrary origin. Zero means "not set" in optional fields.
type Time int64

// Never is later than every other instant. It is the deadline of a timer that does not run.
const Never Time = 1<<63 - 1

// Add returns t+d, saturating at Never.
func (t Time) Add(d time.Duration) Time {
	if s := t + Time(d); s >= t || d < 0 {
		return s
	}
	return Never
}

// Sub returns the duration t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Min returns the earlier of t and u.
func (t Time) Min(u Time) Time { return min(t, u) }
