package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"roced.io/roced/verbs"
)

// pingpong is the state of a latency test on one side.
type pingpong struct {
	*side
	lane *lane
	wrs  [1]verbs.SendWR
	wcs  [16]verbs.WC
	// signaled counts messages whose completions have not been polled.
	signaled int
}

// warmUp is the number of initial exchanges that the result excludes.
const warmUp = 200

// reclaim is the interval of signaled messages. Their completions free send queue slots.
const reclaim = 16

// latencyTest runs the test. The client measures. The server has no result; it answers until the client ends the
// test.
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
	// Values above one minute are out of range; a test fails before that.
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

// exchange returns the function that makes one sample. half reports whether the latency is half of the sample.
func (p *pingpong) exchange() (f func(n uint64) error, half bool) {
	switch p.op() {
	case "write", "send":
		return func(n uint64) error {
			if err := p.send(n); err != nil {
				return err
			}
			return p.await(n)
		}, true
	}
	return p.fetch, false
}

// server answers WRITEs or SENDs until the client is done. READs and atomics need no software on the server.
func (p *pingpong) server() error {
	if p.op() != "write" && p.op() != "send" {
		_, err := p.oob.expect("done")
		return err
	}
	for n := uint64(1); ; n++ {
		err := p.await(n)
		if err == nil {
			err = p.send(n)
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

// outgoing and incoming return the message buffers.
func (p *pingpong) outgoing() []byte { return p.mr.Bytes()[p.out(p.lane, 0):][:p.Size] }

func (p *pingpong) incoming(n uint64) []byte { return p.mr.Bytes()[p.in(p.lane, n):][:p.Size] }

// pattern returns the number that distinguishes the patterns of the two sides.
func (p *pingpong) pattern(mine bool) int {
	if p.active == mine {
		return 0
	}
	return 1
}

// send sends message n. The receiver of a WRITE detects it by the last byte.
func (p *pingpong) send(n uint64) error {
	b := p.outgoing()
	if p.Verify {
		fill(b, int(n), p.pattern(true), 0)
	}
	if p.op() == "write" {
		b[len(b)-1] = byte(n)
	}
	p.request(p.lane, 0, &p.wrs[0], p.lane.sges[:1])
	if n%min(reclaim, uint64(p.TxDepth)) == 0 {
		p.wrs[0].Flags |= verbs.SendSignaled
		// The NIC frees a place of the send queue before the completion is polled, so room there does not suffice.
		if err := p.makeRoom(); err != nil {
			return err
		}
		p.signaled++
	}
	return p.post(p.lane, p.wrs[:])
}

// makeRoom polls send completions until the completion queue has room for one more.
func (p *pingpong) makeRoom() error {
	for {
		if err := p.reclaim(); err != nil || p.signaled < p.TxDepth {
			return err
		}
		if err := p.oob.ctx.Err(); err != nil {
			return err
		}
		yield()
	}
}

// await waits for message n of the peer.
func (p *pingpong) await(n uint64) error {
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
	// The last byte may become visible shortly before the others.
	for deadline := time.Now().Add(arrivalTimeout); ; yield() {
		bad := differs(b, int(n), p.pattern(false), 0)
		if bad < 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("verification: message %d: byte %d is wrong", n, bad)
		}
	}
}

// awaitSend polls for message n and reposts a receive.
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
		if err := p.backOff(p.recvCQ); err != nil {
			return err
		}
	}
	if err := p.checkLength(&p.wcs[0]); err != nil {
		return err
	}
	if p.Verify {
		b := p.mr.Bytes()[p.in(p.lane, p.lane.recvd)+p.headroom():][:p.Size]
		if bad := differs(b, int(n), p.pattern(false), 0); bad >= 0 {
			return fmt.Errorf("verification: message %d: byte %d is wrong", n, bad)
		}
	}
	p.lane.recvd++
	return p.feed(p.lane, p.refill())
}

// idle runs after each poll without a result. It checks for the end of the test and for errors.
func (p *pingpong) idle() error {
	ended := p.oob.ctx.Err() // before the poll, because the last note and the end of the peer may arrive together
	if !p.active {
		_, over, err := p.oob.poll("done")
		if over {
			return errOver
		}
		if err != nil {
			return err
		}
	}
	if ended != nil {
		return ended
	}
	return p.reclaim() // returns errors of our own sends
}

// backOff yields the core, or sleeps with --events. It ignores the end of the peer, because the peer may have ended
// the test first. The caller must check for that.
func (p *pingpong) backOff(q *verbs.CQ) error {
	if !p.Events {
		yield()
		return nil
	}
	if err := p.pause(0, q); err != nil && p.oob.ctx.Err() == nil {
		return err
	}
	return nil
}

// reclaim polls send completions.
func (p *pingpong) reclaim() error {
	n, err := poll(p.sendCQ, p.wcs[:])
	p.signaled -= n
	return err
}

// fetch executes one READ or atomic.
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
		if err := p.backOff(p.sendCQ); err != nil {
			return err
		}
	}
	if !p.Verify {
		return nil
	}
	return p.checkFetched(n)
}

// checkFetched checks the result of READ or atomic n. A READ must return the server's pattern, an atomic the number
// of earlier additions.
func (p *pingpong) checkFetched(n uint64) error {
	b := p.incoming(0)
	if p.op() == "atomic" {
		if got := binary.LittleEndian.Uint64(b); got != n-1 {
			return fmt.Errorf("verification: fetch-and-add %d returned %d instead of %d: an operation was lost or executed twice, or another program wrote to this memory", n, got, n-1)
		}
		return nil
	}
	if bad := differs(b, 0, 0, 0); bad >= 0 {
		return fmt.Errorf("verification: READ %d: byte %d is wrong", n, bad)
	}
	return nil
}
