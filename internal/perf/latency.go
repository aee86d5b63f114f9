package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"roced/verbs"
)

// pingpong is a latency test under way on one side.
type pingpong struct {
	*side
	ctx  context.Context
	lane *lane
	wrs  [1]verbs.SendWR
	wcs  [16]verbs.WC
}

// warmUp is how many exchanges are not counted.
const warmUp = 200

// reclaim is every how many messages one completes visibly: places of the send
// queue come back that way.
const reclaim = 16

// latencyTest runs the test. The client counts; the server answers until it is told
// that the test is over.
func (s *side) latencyTest(ctx context.Context) (*Result, error) {
	p := &pingpong{side: s, ctx: ctx, lane: s.lanes[0]}
	if s.op() == "send" {
		if err := s.feed(p.lane); err != nil {
			return nil, err
		}
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
			return nil, err
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
	r := &Result{Messages: n - warmUp, Seconds: last.Sub(start).Seconds(), Latency: summary(h)}
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
	case "write":
		return func(n uint64) error { return errors.Join(p.write(n), p.awaitWrite(n)) }, true
	case "send":
		return func(n uint64) error { return errors.Join(p.post(n), p.awaitSend()) }, true
	}
	return p.fetch, false
}

// server answers writes or sends until the client is done.
func (p *pingpong) server() error {
	errs := make(chan error, 1)
	go func() {
		_, err := p.oob.expect("done")
		p.stop.Store(true)
		errs <- err
	}()
	for n := uint64(1); p.op() == "write" || p.op() == "send"; n++ {
		if err := p.answer(n); err != nil {
			if errors.Is(err, errOver) {
				break
			}
			return err
		}
	}
	return <-errs
}

// errOver ends a server's wait for the next message.
var errOver = errors.New("the test is over")

func (p *pingpong) answer(n uint64) error {
	if p.op() == "write" {
		if err := p.awaitWrite(n); err != nil {
			return err
		}
		return p.write(n)
	}
	if err := p.awaitSend(); err != nil {
		return err
	}
	return p.post(n)
}

// write sends message n, which the peer knows by its last byte.
func (p *pingpong) write(n uint64) error {
	p.mr.Bytes()[p.out(p.lane, 0)+p.Size-1] = byte(n)
	return p.post(n)
}

// awaitWrite polls memory for message n.
func (p *pingpong) awaitWrite(n uint64) error {
	at := p.in(p.lane, 0) + p.Size - 1
	for byte(p.mr.LoadUint64(at&^7)>>(8*(at&7))) != byte(n) {
		if err := p.idle(); err != nil {
			return err
		}
	}
	return nil
}

// awaitSend polls for a message and posts a receive in its place.
func (p *pingpong) awaitSend() error {
	for {
		n, err := p.poll(p.ctx, p.recvCQ, p.wcs[:1])
		if err != nil {
			if p.stop.Load() {
				return errOver
			}
			return err
		}
		if n > 0 {
			p.lane.recvd++
			return p.feed(p.lane)
		}
		if err := p.idle(); err != nil {
			return err
		}
	}
}

// idle is one round of polling that found nothing.
func (p *pingpong) idle() error {
	if p.stop.Load() {
		return errOver
	}
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.op() == "write" && p.lane.posted > 0 {
		if err := p.reclaim(); err != nil { // errors of what we have sent
			return err
		}
	}
	yield()
	return nil
}

// post sends message n.
func (p *pingpong) post(n uint64) error {
	p.request(p.lane, 0, &p.wrs[0], p.lane.sges[:1])
	if n%reclaim == 0 {
		p.wrs[0].Flags |= verbs.SendSignaled
		if err := p.reclaim(); err != nil {
			return err
		}
	}
	for {
		err := p.lane.q.PostSend(&p.wrs[0])
		if !errors.Is(err, verbs.ErrQueueFull) {
			p.lane.posted++
			return err
		}
		if err := p.idle(); err != nil {
			return err
		}
	}
}

// reclaim takes completions of what has been sent.
func (p *pingpong) reclaim() error {
	n, err := p.sendCQ.Poll(p.wcs[:])
	if err != nil {
		return err
	}
	for i := range p.wcs[:n] {
		if err := p.wcs[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

// fetch is one READ or atomic.
func (p *pingpong) fetch(n uint64) error {
	p.request(p.lane, 0, &p.wrs[0], p.lane.sges[:1])
	p.wrs[0].Flags |= verbs.SendSignaled
	if err := p.lane.q.PostSend(&p.wrs[0]); err != nil {
		return err
	}
	for {
		got, err := p.poll(p.ctx, p.sendCQ, p.wcs[:1])
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
		if got > 0 {
			return nil
		}
		if err := p.ctx.Err(); err != nil {
			return err
		}
		yield()
	}
}
