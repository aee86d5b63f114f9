package qp

import (
	"time"

	"roced/mono"
)

// pacer spreads packets in time. It keeps the fraction of a nanosecond that a
// packet's time has, so that the rate is exact in the long run.
type pacer struct {
	next    mono.Time // instant from which the next packet may leave
	rate    uint64    // bits per second for which rem was computed
	rem     uint64    // of the division by rate
	waiting bool      // a packet is waiting for next

	// backlog says that packets have been waiting without a break: what a late
	// call loses is made up for. Idle time is not.
	backlog bool
}

// ready reports whether a packet may leave at now.
func (p *pacer) ready(now mono.Time) bool {
	p.waiting = now < p.next
	return !p.waiting
}

// nothing tells that no packet left: either one waits or none has waited.
func (p *pacer) nothing() { p.backlog = p.waiting }

// unlimited accounts for a packet that leaves without a rate.
func (p *pacer) unlimited() { p.next, p.rem, p.waiting, p.backlog = 0, 0, false, false }

// charge accounts for a packet that leaves at now at a rate in bits per second. A call that
// comes late makes up for credit at most.
func (p *pacer) charge(now mono.Time, bytes int, rate uint64, credit time.Duration) {
	rate = max(rate, 1)
	earliest := now
	if p.backlog {
		earliest = now.Add(-credit)
	}
	if p.next < earliest || rate != p.rate {
		p.rem = 0
	}
	p.next, p.rate = max(p.next, earliest), rate
	units := uint64(bytes)*8*uint64(time.Second) + p.rem
	p.next = p.next.Add(time.Duration(units / rate))
	p.rem = units % rate
}

// deadline is when a waiting packet may leave.
func (p *pacer) deadline() mono.Time {
	if p.waiting {
		return p.next
	}
	return mono.Never
}
