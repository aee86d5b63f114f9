package perf

import (
	"fmt"
	"time"

	"roced.io/roced/verbs"
)

// flow is the state of a bandwidth test on one side.
type flow struct {
	*side
	sending   bool
	receiving bool // SEND: the peer's messages complete on this side
	deadline  time.Time
	wcs       [64]verbs.WC
	cqs       [2]*verbs.CQ // send CQ and receive CQ

	sent, acked, received uint64

	// total is the number of messages that the peer has sent. The peer reports it at its end.
	total uint64
	known bool
	quiet time.Time // UC, UD: time of the last arrival
}

// arrivalTimeout is the wait after the last datagram. Messages that are missing then count as lost.
const arrivalTimeout = 300 * time.Millisecond

func newFlow(s *side) *flow {
	f := &flow{side: s, cqs: [2]*verbs.CQ{s.sendCQ, s.recvCQ}}
	f.sending = s.active || s.Both
	f.receiving = s.op() == "send" && (!s.active || s.Both)
	return f
}

// transfer runs a bandwidth test on this side. It returns the messages sent and received, and the duration of
// sending.
func (s *side) transfer() (f *flow, seconds float64, err error) {
	f = newFlow(s)
	if f.receiving {
		for _, l := range s.lanes {
			if err := s.feed(l, 1); err != nil {
				return f, 0, err
			}
		}
	}
	if err := s.oob.sync(); err != nil {
		return f, 0, err
	}
	start := time.Now()
	if s.Duration > 0 {
		f.deadline = start.Add(s.Duration)
	}
	if err := f.send(); err != nil {
		return f, 0, err
	}
	seconds = time.Since(start).Seconds()
	return f, seconds, f.settle()
}

// send posts messages until the test ends, then waits for all completions. It continues to receive meanwhile.
func (f *flow) send() error {
	for empty := 0; f.sending; {
		posted := false
		more := f.mayPost()
		for _, l := range f.lanes {
			n, err := f.postSome(l, more)
			if err != nil {
				return err
			}
			posted = posted || n > 0
		}
		reaped, err := f.reap()
		if err != nil {
			return err
		}
		if !more && f.acked == f.sent {
			return nil
		}
		if posted || reaped > 0 {
			empty = 0
			if err := f.oob.ctx.Err(); err != nil {
				return err
			}
			continue
		}
		if err := f.pause(empty, f.queues()...); err != nil {
			return err
		}
		empty++
	}
	return nil
}

// queues returns the completion queues of the active directions.
func (f *flow) queues() []*verbs.CQ {
	all := f.cqs[:]
	switch {
	case !f.receiving:
		return all[:1]
	case !f.sending:
		return all[1:]
	}
	return all
}

// mayPost reports whether the test goes on. For a number of iterations, postSome applies the limit of each lane. Each test has
// messages, also if the duration passes before the first one.
func (f *flow) mayPost() bool {
	if f.Duration > 0 {
		return f.sent == 0 || time.Now().Before(f.deadline)
	}
	return f.sent < uint64(f.Iters)*uint64(f.QPs)
}

// postSome posts one batch on a lane. Only the last message of a batch is signaled.
func (f *flow) postSome(l *lane, more bool) (int, error) {
	n := uint64(f.CQMod)
	if f.Duration == 0 {
		n = min(n, uint64(f.Iters)-l.posted)
	}
	if !more || n == 0 || l.posted+n-l.done > uint64(f.TxDepth) {
		return 0, nil
	}
	return int(n), f.batch(l, n)
}

// batch posts n messages with one doorbell. Only the last one is signaled.
func (f *flow) batch(l *lane, n uint64) error {
	for i := range n {
		f.request(l, l.posted+i, &l.wrs[i], l.sges[i:i+1])
	}
	l.wrs[n-1].Flags |= verbs.SendSignaled
	if err := f.post(l, l.wrs[:n]); err != nil {
		return err
	}
	l.posted += n
	f.sent += n
	return nil
}

const wridMask = 1<<48 - 1

// reap polls completions of both directions.
func (f *flow) reap() (int, error) {
	n, err := poll(f.sendCQ, f.wcs[:])
	if err != nil {
		return 0, err
	}
	for i := range f.wcs[:n] {
		id := f.wcs[i].WRID
		l := f.lanes[id>>48]
		done := id&wridMask + 1
		f.acked += done - l.done
		l.done = done
	}
	if n > 0 && f.meter != nil {
		f.meter(f.acked)
	}
	if !f.receiving {
		return n, nil
	}
	got, err := f.receive()
	return n + got, err
}

// receive polls receive completions and reposts receives.
func (f *flow) receive() (int, error) {
	n, err := poll(f.recvCQ, f.wcs[:])
	if err != nil {
		return 0, err
	}
	for i := range f.wcs[:n] {
		if err := f.checkLength(&f.wcs[i]); err != nil {
			return 0, err
		}
		l := f.lanes[f.wcs[i].WRID]
		l.recvd++
		if err := f.feed(l, f.refill()); err != nil {
			return 0, err
		}
	}
	f.received += uint64(n)
	if n > 0 && f.meter != nil && !f.sending {
		f.meter(f.received)
	}
	return n, nil
}

// checkLength returns an error if a message does not have its original length.
func (s *side) checkLength(wc *verbs.WC) error {
	want := s.Size
	if wc.Flags&verbs.WCGRH != 0 {
		want += grhLen
	}
	if int(wc.ByteLen) != want {
		return fmt.Errorf("queue pair %d has received %d bytes instead of %d", wc.QPN, wc.ByteLen, want)
	}
	return nil
}

// settle reports the number of sent messages to the peer, then receives the peer's remaining messages.
func (f *flow) settle() error {
	if err := f.oob.send(note{Kind: "done", Messages: f.sent}); err != nil {
		return err
	}
	for empty := 0; f.receiving; {
		over, err := f.complete()
		if over || err != nil {
			return err
		}
		n, err := f.receive()
		if err != nil {
			return err
		}
		if n > 0 {
			f.quiet, empty = time.Now(), 0
			continue
		}
		if err := f.pause(empty, f.cqs[1]); err != nil {
			return err
		}
		empty++
	}
	n, err := f.oob.expect("done")
	f.total = n.Messages
	return err
}

// complete reports whether all expected messages have arrived.
func (f *flow) complete() (bool, error) {
	if !f.known {
		n, got, err := f.oob.poll("done")
		if err != nil || !got {
			return false, err
		}
		f.total, f.known, f.quiet = n.Messages, true, time.Now()
	}
	return f.received >= f.total || f.Connection != "rc" && time.Since(f.quiet) > arrivalTimeout, nil
}

// bandwidth runs the test and exchanges the results of both sides.
func (s *side) bandwidth() (*Result, error) {
	f, seconds, err := s.transfer()
	if err != nil {
		return nil, err
	}
	if s.op() != "send" {
		f.received = f.total // WRITEs and READs have no receive completions to count
	}
	if err := s.oob.send(note{Kind: "result", Messages: f.received, Seconds: seconds}); err != nil {
		return nil, err
	}
	theirs, err := s.oob.expect("result")
	if err != nil {
		return nil, err
	}
	if s.op() == "send" && s.Connection == "rc" && theirs.Messages < f.sent {
		return nil, fmt.Errorf("%d messages sent, %d received", f.sent, theirs.Messages)
	}
	r := &Result{Messages: f.sent, Seconds: seconds, Received: theirs.Messages}
	count := theirs.Messages + f.received
	if !f.sending {
		r.Messages, r.Seconds, r.Received = f.total, theirs.Seconds, f.received
		count = f.received
	}
	if s.op() != "send" {
		r.Received = 0
	}
	r.setRate(count)
	return r, nil
}
