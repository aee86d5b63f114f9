package server

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// advice is an error of which a program sees the number only: what is wrong, and what can
// be done about it. The daemon logs it, and the answer carries it.
type advice struct {
	errno unix.Errno
	text  string
}

// Error is the sentence.
func (a *advice) Error() string { return a.text }

// Unwrap is what the program sees.
func (a *advice) Unwrap() error { return a.errno }

// advise makes an error with advice, and logs it unless too much has been logged.
func (c *client) advise(errno unix.Errno, text string) error {
	if ok, unsaid := c.srv.advised.may(time.Now()); ok {
		c.log.Warn(text, "err", errno, "unsaid", unsaid)
	}
	return &advice{errno, text}
}

// advicePause is how long the log is silent after an advice: any program can ask for them.
const advicePause = time.Second

// pauser lets something through at most once in advicePause.
type pauser struct {
	mu     sync.Mutex
	next   time.Time
	unsaid int
}

// may reports whether it may be now, and how often it might not since it last might.
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
