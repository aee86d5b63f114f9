package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// pingPong recognises two programs that exchange small messages, one in flight at a time. Their latency is that of the
// hand-overs between programs, daemons and link. On few cores a hand-over takes a switch between threads, so the loop
// saves switches that lead to nothing:
//
//   - After an answer has left, the loop polls for the next frame without yields. Its own program waits for that frame, too.
//   - It answers a small frame before it looks for another one.
//   - The thread moves to the core of its program (together.go).
//
// All of this ends with the first message that is none of a ping-pong.
type pingPong struct {
	exchanges int       // in a row
	received  int       // frames since the last doorbell
	needed    int       // exchanges before the loop polls without yields
	credit    int       // of polls without yields; 0: they yield
	until     mono.Time // the loop polls without yields until then; 0: it does not
}

// turn is the traffic of a turn of the loop.
type turn struct {
	received int // frames
	rung     int // doorbells
	sent     int // frames
	bytes    int // sent
	bell     *Bell
}

const (
	// smallFrame limits the frames of a ping-pong, in bytes.
	smallFrame = 512
	// exchangeFrames limits the frames that a side receives in an exchange: a message, and acknowledgements beside it.
	exchangeFrames = 4
	// pollAlone is the longest poll without yields. A peer that takes longer is far, slow, or in need of this core.
	pollAlone = 50 * time.Microsecond
	// fewExchanges and manyExchanges limit pingPong.needed. It doubles when polls without yields find nothing.
	fewExchanges, manyExchanges = 16, 4096
	// A poll without yields that finds a frame saves about 2 us; one that finds none costs pollAlone.
	maxCredit, missCost = 64, 16
)

// note takes the traffic of a turn with work. poll is the time to poll for the next frame.
func (p *pingPong) note(now mono.Time, t *turn, poll time.Duration) {
	p.received += t.received
	if t.received > 0 && p.until != 0 {
		p.until = 0
		if p.credit = min(p.credit+1, maxCredit); p.credit == maxCredit {
			p.needed = fewExchanges
		}
	}
	switch {
	case (t.rung == 0 || t.sent == 0) && t.bytes < smallFrame: // acknowledgements; an earlier turn has sent the message
		return
	case p.received == 0, p.received > exchangeFrames, t.sent > 1, t.bytes >= smallFrame:
		p.exchanges, p.credit, p.until = 0, 0, 0
	default:
		p.exchanges++
		p.needed = max(p.needed, fewExchanges)
		if p.credit == 0 && p.exchanges >= p.needed {
			p.credit = missCost
		}
		if p.credit > 0 {
			p.until = now.Add(min(poll, pollAlone))
		}
	}
	p.received = 0
}

// polls reports whether the loop polls without yields at this time.
func (p *pingPong) polls(now mono.Time) bool {
	if now < p.until {
		return true
	}
	if p.until != 0 {
		p.until = 0
		if p.credit = max(p.credit-missCost, 0); p.credit == 0 {
			p.exchanges, p.needed = 0, min(2*p.needed, manyExchanges)
		}
	}
	return false
}

// on reports whether there is a ping-pong.
func (p *pingPong) on() bool { return p.credit > 0 }
