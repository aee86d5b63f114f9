package sched

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Bucket is a token bucket. A sender may go on while tokens are left: the last frame may exceed them by its length. Then the
// bucket delays the next one for as long, so the long-term rate is exact. The zero Bucket is unlimited.
type Bucket struct {
	rate  uint64        // bits per second, 0: no limit
	depth time.Duration // the time that fills the bucket
	full  mono.Time     // when the bucket will be full
	rem   fraction
}

// SetRate changes the rate in bits per second, 0 for no limit, and the burst in bytes. The bucket is full at first, and a
// change keeps the time by which it will be full.
func (b *Bucket) SetRate(rate uint64, burst int) {
	b.rate, b.rem = rate, 0
	b.depth = new(fraction).span(burst, max(rate, 1))
}

// Ready reports whether a frame may leave at now.
func (b *Bucket) Ready(now mono.Time) bool { return b.rate == 0 || now >= b.Next() }

// Next returns when the next frame may leave.
func (b *Bucket) Next() mono.Time { return b.full.Add(-b.depth) }

// Charge accounts for a frame of that many bytes on the wire, which leaves at now.
func (b *Bucket) Charge(now mono.Time, bytes int) {
	if b.rate == 0 {
		return
	}
	if b.full < now {
		b.full, b.rem = now, 0
	}
	b.full = b.full.Add(b.rem.span(bytes, b.rate))
}
