package engine

import (
	"time"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/plugin/mono"
)

// Time is an instant or a span of simulated time in picoseconds: 64 bytes at 400 Gb/s take 1280 ps. The range is
// 106 days.
type Time int64

// UnmarshalYAML reads a span such as 1.5us.
func (t *Time) UnmarshalYAML(decode func(any) error) error {
	return quantity.Decode(t, decode, quantity.ParseTime)
}

// Units of time.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is later than every instant.
const Never Time = 1<<63 - 1

// origin is the instant zero for queue pairs, for which a zero time means "not set".
const origin mono.Time = 1

// Mono returns t for queue pairs: in whole nanoseconds, rounded down.
func (t Time) Mono() mono.Time { return mono.Time(t/Nanosecond) + origin }

// FromMono returns the first instant that Mono maps to m.
func FromMono(m mono.Time) Time {
	if m == mono.Never {
		return Never
	}
	return Time(m-origin) * Nanosecond
}

// Duration returns t in whole nanoseconds, rounded down.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }
