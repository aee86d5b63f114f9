package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"roced.io/roced/verbs"
)

// pingpong is a latency test under way on one side.
type pingpong struct {
	*side
	lane *lane
	wrs  [1]verbs.SendWR
	wcs  [16]verbs.WC
}

// warmUp is how many exchanges are not counted.
const warmUp = 200

// reclaim is every how many messages one completes visibly: places of the send
// queue come back that way.
const reclaim = 16

// latencyTest runs the test. The client counts; the server, which has no result,
// answers until it is told that the test is over.
func (s *side) latencyTest() (*Result, error) {
	p := &pingpong{side: s, lane: s.lanes[0]}
	if s.op() == "send" {
		if err := s.feed(p.lane, 1); err != nil {
			return nil, err
		}
	}
	if s.Verify && s.op() == "read" && !s.active {
		fill(p.outgoing(), 0, 0, 0)
	}
	if err := s.oob.sync(); err != nil {
		return nil, err
	}
	if s.active {
		return p.client()
	}
	return nil, p.server()
}

func (p *pingpong) client() (*Result, error) {
	h := newHistogram()
	exchange, half := p.exchange()
	start := time.Now()
	last := start
	var n uint64
	for {
		if err := exchange(n + 1); err != nil {
			return nil, fmt.Errorf("message %d: %w", n+1, err)
		}
		now := time.Now()
		if n++; n == warmUp {
			start = now
		} else if n > warmUp {
			record(h, now.Sub(last), half)
		}
		last = now
		if p.over(n, now.Sub(start)) {
			break
		}
		if p.meter != nil && n%64 == 0 {
			p.meter(n)
		}
	}
	r := &Result{Messages: n - warmUp, Seconds: last.Sub(start).Seconds(), Latency: summary(h), Verified: p.Verify}
	r.MessagesPerSecond = float64(r.Messages) / r.Seconds
	return r, p.oob.send(note{Kind: "done", Messages: n})
}

func record(h *hdrhistogram.Histogram, d time.Duration, half bool) {
	if half {
		d /= 2
	}
	// Only values beyond a minute do not fit; a test has failed before.
	_ = h.RecordValue(int64(d))
}

func (p *pingpong) over(n uint64, d time.Duration) bool {
	if n <= warmUp {
		return false
	}
	if p.Duration > 0 {
		return d >= p.Duration
	}
	return n >= warmUp+uint64(p.Iters)
}

// exchange returns what makes one sample, and whether the latency is half of it.
func (p *pingpong) exchange() (f func(n uint64) error, half bool) {
	switch p.op() {
	case "write", "send":
		return func(n uint64) error {
			if err := p.say(n); err != nil {
				return err
			}
			return p.hear(n)
		}, true
	}
	return p.fetch, false
}

// server answers writes or sends until the client is done. Reads and atomics need
// nobody here.
func (p *pingpong) server() error {
	if p.op() != "write" && p.op() != "send" {
		_, err := p.oob.expect("done")
		return err
	}
	for n := uint64(1); ; n++ {
		err := p.hear(n)
		if err == nil {
			err = p.say(n)
		}
		if errors.Is(err, errOver) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// errOver ends a server's wait for the next message.
var errOver = errors.New("the test is over")

// outgoing and incoming are the memory of messages.
func (p *pingpong) outgoing() []byte { return p.mr.Bytes()[p.out(p.lane, 0):][:p.Size] }

func (p *pingpong) incoming(n uint64) []byte { return p.mr.Bytes()[p.in(p.lane, n):][:p.Size] }

// voice tells the patterns of the two sides apart.
func (p *pingpong) voice(mine bool) int {
	if p.active == mine {
		return 0
	}
	return 1
}

// say sends message n. A WRITE is known by its last byte.
func (p *pingpong) say(n uint64) error {
	b := p.outgoing()
	if p.Verify {
		fill(b, int(n), p.voice(true), 0)
	}
	if p.op() == "write" {
		b[len(b)-1] = byte(n)
	}
	p.request(p.lane, 0, &p.wrs[0], p.lane.sges[:1])
	if n%min(reclaim, uint64(p.TxDepth)) == 0 {
		p.wrs[0].Flags |= verbs.SendSignaled
		if err := p.reclaim(); err != nil {
			return err
		}
	}
	return p.post(p.lane, p.wrs[:])
}

// hear waits for message n of the peer.
func (p *pingpong) hear(n uint64) error {
	if p.op() == "write" {
		return p.awaitWrite(n)
	}
	return p.awaitSend(n)
}

// awaitWrite polls memory for message n.
func (p *pingpong) awaitWrite(n uint64) error {
	at := p.in(p.lane, 0) + p.Size - 1
	for byte(p.mr.LoadUint64(at&^7)>>(8*(at&7))) != byte(n) {
		if err := p.idle(); err != nil {
			return err
		}
		yield()
	}
	if !p.Verify {
		return nil
	}
	b := p.incoming(0)[:p.Size-1]
	// The last byte may have been written a moment before the others.
	for deadline := time.Now().Add(patience); ; yield() {
		bad := differs(b, int(n), p.voice(false), 0)
		if bad < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("verification: message %d: byte %d is wrong", n, bad)
		}
	}
}

// awaitSend polls for message n and posts a receive in its place.
func (p *pingpong) awaitSend(n uint64) error {
	for {
		got, err := poll(p.recvCQ, p.wcs[:1])
		if err != nil {
			return err
		}
		if got > 0 {
			break
		}
		if err := p.idle(); err != nil {
			return err
		}
		if err := p.linger(p.recvCQ); err != nil {
			return err
		}
	}
	if err := p.checkLength(&p.wcs[0]); err != nil {
		return err
	}
	if p.Verify {
		b := p.mr.Bytes()[p.in(p.lane, p.lane.recvd)+p.headroom():][:p.Size]
		if bad := differs(b, int(n), p.voice(false), 0); bad >= 0 {
			return fmt.Errorf("verification: message %d: byte %d is wrong", n, bad)
		}
	}
	p.lane.recvd++
	return p.feed(p.lane, p.refill())
}

// idle is one round of polling that found nothing.
func (p *pingpong) idle() error {
	if !p.active {
		_, over, err := p.oob.heard("done")
		if over {
			return errOver
		}
		if err != nil {
			return err
		}
	}
	if err := p.oob.ctx.Err(); err != nil {
		return err
	}
	return p.reclaim() // errors of what we have sent
}

// linger gives the core away, or sleeps with --events. That the peer has gone is
// for the caller to find out: it may have said before that the test is over.
func (p *pingpong) linger(q *verbs.CQ) error {
	if !p.Events {
		yield()
		return nil
	}
	if err := p.pause(0, q); err != nil && p.oob.ctx.Err() == nil {
		return err
	}
	return nil
}

// reclaim takes completions of what has been sent.
func (p *pingpong) reclaim() error {
	_, err := poll(p.sendCQ, p.wcs[:])
	return err
}

// fetch is one READ or atomic.
func (p *pingpong) fetch(n uint64) error {
	p.request(p.lane, 0, &p.wrs[0], p.lane.sges[:1])
	p.wrs[0].Flags |= verbs.SendSignaled
	if p.Verify {
		clear(p.incoming(0))
	}
	if err := p.post(p.lane, p.wrs[:]); err != nil {
		return err
	}
	for {
		got, err := poll(p.sendCQ, p.wcs[:1])
		if err != nil {
			return err
		}
		if got > 0 {
			break
		}
		if err := p.oob.ctx.Err(); err != nil {
			return err
		}
		if err := p.linger(p.sendCQ); err != nil {
			return err
		}
	}
	if !p.Verify {
		return nil
	}
	return p.checkFetched(n)
}

// checkFetched looks at what READ or atomic number n has brought: the server's
// pattern, or the number of additions before this one.
func (p *pingpong) checkFetched(n uint64) error {
	b := p.incoming(0)
	if p.op() == "atomic" {
		if got := binary.LittleEndian.Uint64(b); got != n-1 {
			return fmt.Errorf("verification: %d in place of %d", got, n-1)
		}
		return nil
	}
	if bad := differs(b, 0, 0, 0); bad >= 0 {
		return fmt.Errorf("verification: byte %d is wrong", bad)
	}
	return nil
}
