package retrans

import (
	"time"

	"roced/param"
)

// backoff doubles a timeout for each one in a row without progress. The papers, whose NICs
// are hardware, have none. A peer that is a process comes round late: what is sent again
// each time meanwhile would keep it from ever catching up (RFC 6298 5.5).
type backoff uint8

// maxBackoff bounds how often a timeout is doubled.
const maxBackoff = 6

// expired counts a timeout.
func (b *backoff) expired() { *b = min(*b+1, maxBackoff) }

// progress is a cumulative acknowledgement.
func (b *backoff) progress() { *b = 0 }

// of returns the timeout instead of d.
func (b backoff) of(d time.Duration) time.Duration { return d << b }

// timeout is that of the queue pair or, if it is not zero, the transport's own, which
// backs off.
type timeout struct {
	queuePair, own time.Duration
	backoff        backoff
}

// ownTimeout reads the transport's own timeout; zero: that of the queue pair.
func ownTimeout(r *param.Reader, us float64) time.Duration {
	return time.Duration(r.Value("rto_us", us, 0, 1e7) * 1e3)
}

// length returns the timeout, zero if there is none.
func (t *timeout) length() time.Duration {
	if t.own > 0 {
		return t.backoff.of(t.own)
	}
	return t.queuePair
}
