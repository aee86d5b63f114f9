package retrans

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// backoff doubles a timeout for each consecutive timeout without progress. The papers have hardware NICs and no backoff.
// A peer that is a process may respond late; constant retransmission would keep it from catching up (RFC 6298 5.5).
type backoff struct {
	n, most uint8 // current and maximum number of doublings
}

// maxDoublings limits the number of doublings.
const maxDoublings = 6

// readBackoff reads the maximum number of doublings; 0 disables backoff, as in the papers.
func readBackoff(r *param.Reader) backoff {
	return backoff{most: uint8(r.Int("rto_doublings", maxDoublings, 0, maxDoublings))}
}

// expired counts a timeout.
func (b *backoff) expired() { b.n = min(b.n+1, b.most) }

// progress ends the backoff, at a cumulative acknowledgement.
func (b *backoff) progress() { b.n = 0 }

// of returns the backed-off value of d.
func (b backoff) of(d time.Duration) time.Duration { return d << b.n }

// timeout is the retransmission timer of a scheme. Its length is the timeout of the queue pair or, if that is not zero,
// the scheme's own timeout, which backs off.
type timeout struct {
	duration time.Duration // zero: infinite
	fixed    bool
	backoff  backoff
	// slowPeer means that the peer may answer later than the timeout (GoBackN.SetSlowPeer).
	slowPeer bool
	base     mono.Time // start of the timer
}

// readTimeout reads the scheme's own timeout; zero selects that of the queue pair.
func readTimeout(r *param.Reader, us float64) timeout {
	d := time.Duration(r.Value("rto_us", us, 0, 1e7) * 1e3)
	return timeout{duration: d, fixed: d > 0, backoff: readBackoff(r)}
}

// SetTimeout implements Recovery.
func (t *timeout) SetTimeout(d time.Duration) {
	if !t.fixed {
		t.duration = d
	}
}

// length returns the timeout, zero if it is infinite.
func (t *timeout) length() time.Duration {
	if t.fixed {
		return t.backoff.of(t.duration)
	}
	return t.duration
}

// restart starts the timer anew at a cumulative acknowledgement.
func (t *timeout) restart(now mono.Time) {
	t.base = now
	t.backoff.progress()
}

// at returns the deadline of the timer, or mono.Never if it is not armed or infinite.
func (t *timeout) at(armed bool) mono.Time {
	d := t.length()
	if d == 0 || !armed {
		return mono.Never
	}
	return t.base.Add(d)
}
