package server

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// advice is an error with an explanation. The program sees only the errno. The daemon logs the text, and the answer
// carries it.
type advice struct {
	errno unix.Errno
	text  string
}

// Error returns the text.
func (a *advice) Error() string { return a.text }

// Unwrap returns the errno that the program sees.
func (a *advice) Unwrap() error { return a.errno }

// advise returns an error with advice. It logs the text, rate-limited.
func (c *client) advise(errno unix.Errno, text string) error {
	if ok, unsaid := c.srv.advised.may(time.Now()); ok {
		c.log.Warn(text, "err", errno, "unsaid", unsaid)
	}
	return &advice{errno, text}
}

// advicePause is the minimum interval between two logged advices, because any program can trigger them.
const advicePause = time.Second

// pauser is a rate limiter: one pass per advicePause.
type pauser struct {
	mu     sync.Mutex
	next   time.Time
	unsaid int
}

// may reports whether a pass is allowed now, and how many were refused since the last one.
func (p *pauser) may(now time.Time) (ok bool, unsaid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next) {
		p.unsaid++
		return false, 0
	}
	unsaid, p.unsaid, p.next = p.unsaid, 0, now.Add(advicePause)
	return true, unsaid
}
