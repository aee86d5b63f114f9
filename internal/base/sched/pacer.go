package sched

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// fraction is what is left of a nanosecond, in units of the rate.
type fraction uint64

// span returns the time that bytes take at a rate in bits per second. It keeps the fraction of a nanosecond for the next call.
func (f *fraction) span(bytes int, rate uint64) time.Duration {
	units := uint64(bytes)*8*uint64(time.Second) + uint64(*f)
	*f = fraction(units % rate)
	return time.Duration(units / rate)
}

// Pacer spreads packets in time. It keeps fractions of a nanosecond, so that the long-term rate is exact.
type Pacer struct {
	Next    mono.Time // earliest time of the next packet
	rate    uint64    // bits per second for which rem was computed
	rem     fraction
	Waiting bool // a packet is waiting for Next

	// backlog is set while packets wait without a break. The pacer then makes up for late calls, but not for idle time.
	backlog bool
}

// Ready reports whether a packet may leave at now.
func (p *Pacer) Ready(now mono.Time) bool {
	p.Waiting = now < p.Next
	return !p.Waiting
}

// Nothing records that no packet left: either one is held or none was waiting.
func (p *Pacer) Nothing() { p.backlog = p.Waiting }

// Unlimited accounts for a packet that leaves without a rate.
func (p *Pacer) Unlimited() { p.Next, p.rem, p.Waiting, p.backlog = 0, 0, false, false }

// Charge accounts for a packet that leaves at now at a rate in bits per second. A late call makes up for at most credit.
func (p *Pacer) Charge(now mono.Time, bytes int, rate uint64, credit time.Duration) {
	rate = max(rate, 1)
	earliest := now
	if p.backlog {
		earliest = now.Add(-credit)
	}
	if p.Next < earliest || rate != p.rate {
		p.rem = 0
	}
	p.Next, p.rate = max(p.Next, earliest), rate
	p.Next = p.Next.Add(p.rem.span(bytes, rate))
}

// Deadline returns when a waiting packet may leave, mono.Never if none waits.
func (p *Pacer) Deadline() mono.Time {
	if p.Waiting {
		return p.Next
	}
	return mono.Never
}
