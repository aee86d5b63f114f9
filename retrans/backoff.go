package retrans

import "time"

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
