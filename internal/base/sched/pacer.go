package sched

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Pacer spreads packets in time. It keeps the fraction of a nanosecond that a
// packet's time has, so that the rate is exact in the long run.
type Pacer struct {
	Next    mono.Time // instant from which the next packet may leave
	rate    uint64    // bits per second for which rem was computed
	rem     uint64    // of the division by rate
	Waiting bool      // a packet is waiting for Next

	// backlog says that packets have been waiting without a break: what a late
	// call loses is made up for. Idle time is not.
	backlog bool
}

// Ready reports whether a packet may leave at now.
func (p *Pacer) Ready(now mono.Time) bool {
	p.Waiting = now < p.Next
	return !p.Waiting
}

// Nothing tells that no packet left: either one is held or none was waiting.
func (p *Pacer) Nothing() { p.backlog = p.Waiting }

// Unlimited accounts for a packet that leaves without a rate.
func (p *Pacer) Unlimited() { p.Next, p.rem, p.Waiting, p.backlog = 0, 0, false, false }

// Charge accounts for a packet that leaves at now at a rate in bits per second. A call that
// comes late makes up for credit at most.
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
	units := uint64(bytes)*8*uint64(time.Second) + p.rem
	p.Next = p.Next.Add(time.Duration(units / rate))
	p.rem = units % rate
}

// Deadline is when a waiting packet may leave.
func (p *Pacer) Deadline() mono.Time {
	if p.Waiting {
		return p.Next
	}
	return mono.Never
}
