package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"roced.io/roced/verbs"
)

// fill writes the pattern of one message. It differs for every round, queue pair and slot.
func fill(b []byte, round, lane, slot int) { fillFrom(b, seed(round, lane, slot)) }

// fillFrom writes the stream that begins with x.
func fillFrom(b []byte, x uint64) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, x)
		x = next(x)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
}

// differs returns the index of the first byte that differs from fill's pattern, or -1.
func differs(b []byte, round, lane, slot int) int { return differsFrom(b, seed(round, lane, slot)) }

// differsFrom returns the index of the first byte that differs from fillFrom's stream, or -1.
func differsFrom(b []byte, x uint64) int {
	off := 0
	for ; len(b)-off >= 8; off += 8 {
		if binary.LittleEndian.Uint64(b[off:]) != x {
			break
		}
		x = next(x)
	}
	for i := 0; off < len(b) && i < 8; i, off = i+1, off+1 {
		if b[off] != byte(x>>(8*i)) {
			return off
		}
	}
	return -1
}

func seed(round, lane, slot int) uint64 {
	return next(uint64(round)<<40 ^ uint64(lane)<<20 ^ uint64(slot) ^ 0x9e3779b97f4a7c15)
}

// next is xorshift64 (Marsaglia).
func next(x uint64) uint64 {
	x ^= x << 13
	x ^= x >> 7
	return x ^ x<<17
}

// verify transfers messages in rounds, each message into its own memory. The receiver compares every byte.
func (s *side) verify() (*Result, error) {
	f := newFlow(s)
	start := time.Now()
	r := &Result{Verified: true}
	for round := 1; ; round++ {
		n, err := f.round(round)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if n == 0 {
			break
		}
		r.Messages += n
		if s.meter != nil {
			s.meter(r.Messages)
		}
	}
	r.Seconds = time.Since(start).Seconds()
	r.setRate(r.Messages)
	return r, nil
}

// round runs one round of verify. It returns the number of messages; 0 means that the client has ended the test.
func (f *flow) round(round int) (uint64, error) {
	if f.active {
		return f.clientRound(round)
	}
	return f.serverRound(round)
}

func (f *flow) clientRound(round int) (uint64, error) {
	// The last round may be smaller than the number of slots.
	per := uint64(f.slots)
	if f.Iters > 0 {
		per = min(per, uint64(f.Iters)-f.lanes[0].posted)
	}
	if f.deadline.IsZero() {
		f.deadline = time.Now().Add(f.Duration)
	}
	over := per == 0 || f.Duration > 0 && round > 1 && time.Now().After(f.deadline)
	if over {
		per = 0
	}
	if err := f.oob.send(note{Kind: "round", Round: round, Messages: per}); err != nil || over {
		return 0, err
	}
	if _, err := f.oob.expect("ready"); err != nil {
		return 0, err
	}
	f.prepare(round, per)
	if err := f.sendRound(per); err != nil {
		return 0, err
	}
	if f.op() == "read" {
		if err := f.compare(round, per); err != nil {
			return 0, err
		}
	}
	if err := f.oob.send(note{Kind: "check", Round: round}); err != nil {
		return 0, err
	}
	_, err := f.oob.expect("checked")
	return per * uint64(f.QPs), err
}

func (f *flow) serverRound(round int) (uint64, error) {
	n, err := f.oob.expect("round")
	if err != nil || n.Messages == 0 {
		return 0, err
	}
	if n.Round != round || n.Messages > uint64(f.slots) {
		return 0, fmt.Errorf("the other side is in round %d with %d messages", n.Round, n.Messages)
	}
	f.prepare(round, n.Messages)
	if f.receiving {
		for _, l := range f.lanes {
			if err := f.feed(l, 1); err != nil {
				return 0, err
			}
		}
	}
	if err := f.oob.send(note{Kind: "ready"}); err != nil {
		return 0, err
	}
	if _, err := f.oob.expect("check"); err != nil {
		return 0, err
	}
	if err := f.gather(round, n.Messages); err != nil {
		return 0, err
	}
	if f.op() != "read" {
		if err := f.compare(round, n.Messages); err != nil {
			return 0, err
		}
	}
	return n.Messages * uint64(f.QPs), f.oob.send(note{Kind: "checked", Round: round})
}

// prepare writes the round's pattern to the source buffers and zeros to the destination buffers.
func (f *flow) prepare(round int, per uint64) {
	source := f.active == (f.op() != "read")
	for _, l := range f.lanes {
		l.base = l.posted
		for i := range per {
			if source {
				off := f.out(l, l.base+i)
				fill(f.mr.Bytes()[off:off+f.Size], round, l.index, int(i))
				continue
			}
			off := f.in(l, l.base+i)
			clear(f.mr.Bytes()[off : off+f.stride])
		}
		if !f.active {
			l.posted += per // posted counts the messages that the client posts
		}
	}
}

// compare checks every byte of a round's messages.
func (f *flow) compare(round int, per uint64) error {
	for _, l := range f.lanes {
		for i := range per {
			off := f.in(l, l.base+i) + f.headroom()
			if at := differs(f.mr.Bytes()[off:off+f.Size], round, l.index, int(i)); at >= 0 {
				return fmt.Errorf("verification: queue pair %d, message %d: byte %d is wrong", l.index, l.base+i, at)
			}
		}
	}
	return nil
}

// sendRound posts a round's messages and waits for their completions.
func (f *flow) sendRound(per uint64) error {
	for _, l := range f.lanes {
		for left := per; left > 0; {
			k := min(left, uint64(f.CQMod))
			if err := f.batch(l, k); err != nil {
				return err
			}
			left -= k
		}
	}
	return f.wait(func() bool { return f.acked == f.sent }, f.reap, f.cqs[:1])
}

// wait calls step until done returns true. On an unreliable service it returns an error after lossTimeout without
// progress. Completions of queues end a pause.
func (f *flow) wait(done func() bool, step func() (int, error), queues []*verbs.CQ) error {
	last := time.Now()
	for empty := 0; !done(); {
		n, err := step()
		if err != nil {
			return err
		}
		if n > 0 {
			last, empty = time.Now(), 0
			continue
		}
		if f.Connection != "rc" && time.Since(last) > lossTimeout {
			return errors.New("verification: messages have been lost")
		}
		if err := f.pause(empty, queues...); err != nil {
			return err
		}
		empty++
	}
	return nil
}

// lossTimeout is the time after which a verified test treats a missing message as lost.
const lossTimeout = 5 * time.Second

// gather waits until a round's messages have arrived. SENDs complete; gather polls memory for UC WRITEs, which have
// no acknowledgement.
func (f *flow) gather(round int, per uint64) error {
	f.total += per * uint64(f.QPs)
	switch {
	case f.receiving:
		return f.wait(func() bool { return f.received >= f.total }, f.receive, f.cqs[1:])
	case f.Connection == "uc":
		return f.wait(func() bool { return f.compare(round, per) == nil }, f.reap, f.cqs[:1])
	}
	return nil
}
