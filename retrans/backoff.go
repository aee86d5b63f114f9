package retrans

import (
	"time"

	"roced.io/roced/plugin/param"
)

// backoff doubles a timeout for each one in a row without progress. The papers, whose NICs
// are hardware, have none. A peer that is a process comes round late: what is sent again
// each time meanwhile would keep it from ever catching up (RFC 6298 5.5).
type backoff struct {
	n, most uint8 // so often it is doubled now, and at most
}

// maxDoublings bounds how often a timeout can be doubled.
const maxDoublings = 6

// readBackoff reads how often a timeout is doubled at most; 0: never, as in the papers.
func readBackoff(r *param.Reader) backoff {
	return backoff{most: uint8(r.Int("rto_doublings", maxDoublings, 0, maxDoublings))}
}

// expired counts a timeout.
func (b *backoff) expired() { b.n = min(b.n+1, b.most) }

// progress is a cumulative acknowledgement.
func (b *backoff) progress() { b.n = 0 }

// of returns the timeout instead of d.
func (b backoff) of(d time.Duration) time.Duration { return d << b.n }

// timeout is that of the queue pair or, if it is not zero, the transport's own, which
// backs off.
type timeout struct {
	is      time.Duration // zero: none
	own     bool
	backoff backoff
}

// readTimeout reads the transport's own timeout; zero: that of the queue pair.
func readTimeout(r *param.Reader, us float64) timeout {
	d := time.Duration(r.Value("rto_us", us, 0, 1e7) * 1e3)
	return timeout{is: d, own: d > 0, backoff: readBackoff(r)}
}

// ofQueuePair takes over the timeout of the queue pair.
func (t *timeout) ofQueuePair(d time.Duration) {
	if !t.own {
		t.is = d
	}
}

// length returns the timeout, zero if there is none.
func (t *timeout) length() time.Duration {
	if t.own {
		return t.backoff.of(t.is)
	}
	return t.is
}
