package port

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Intervals at which a port checks its link.
const (
	PollInterval = time.Second            // for a link that is up
	MinBackoff   = 100 * time.Millisecond // for a link that is down: first interval, doubled up to MaxBackoff
	MaxBackoff   = 2 * time.Second
	openInterval = 5 * time.Millisecond // for the end of an attempt to reopen the link
)

// Base is the common part of all ports on devices and sockets of the kernel: the state of the link, and when to check
// it. Embedded in a port, it implements FD, State, Stats and NextTimeout.
type Base struct {
	Counters Stats
	Next     mono.Time // when to check the link

	fd    int // descriptor of a link that is up
	state link.State
	wait  time.Duration // last backoff
}

// FD implements Port.
func (b *Base) FD() int {
	if !b.state.Up {
		return -1
	}
	return b.fd
}

// State implements Monitored.
func (b *Base) State() link.State { return b.state }

// Stats implements Monitored.
func (b *Base) Stats() Stats { return b.Counters }

// NextTimeout implements Port.
func (b *Base) NextTimeout() mono.Time { return b.Next }

// SetState records the state of the link. fd is the descriptor of a link that is up.
func (b *Base) SetState(s link.State, fd int) {
	b.state, b.fd = s, fd
	if s.Up {
		b.wait = 0
	}
}

// Checked records the state that a check has found and schedules the next check.
func (b *Base) Checked(now mono.Time, s link.State, fd int) {
	b.SetState(s, fd)
	if s.Up {
		b.Next = now.Add(PollInterval)
		return
	}
	b.wait = min(max(2*b.wait, MinBackoff), MaxBackoff)
	b.Next = now.Add(b.wait)
}

// Lose records that the link has vanished and schedules the first attempt to reopen it.
func (b *Base) Lose(now mono.Time, err error) {
	b.Counters.Lost++
	b.Checked(now, link.State{Err: err}, -1)
}

// SetClosed records that the port is closed.
func (b *Base) SetClosed() {
	b.SetState(link.State{Err: errClosed}, -1)
	b.Next = mono.Never
}

// SendFailed converts the error of a system call that sends, and counts it. kind prefixes the error. poll checks the
// link; it is called if the error may mean that the link is down.
func (b *Base) SendFailed(kind string, e unix.Errno, poll func()) error {
	switch e {
	case unix.EAGAIN:
		b.Counters.Again++
		return ErrAgain
	case unix.ENOBUFS, unix.ENOMEM:
		b.Counters.Again++
		return ErrRefused
	case unix.EIO, unix.EBADFD, unix.EBADF, unix.ENODEV, unix.ENETDOWN, unix.ENXIO:
		if poll(); !b.state.Up {
			return ErrDown
		}
	}
	b.Counters.SendDropped++
	return fmt.Errorf("%s: write: %w", kind, e)
}

// RecvFailed converts the error of a system call that receives. See SendFailed.
func (b *Base) RecvFailed(kind string, e unix.Errno, poll func()) error {
	if e == unix.EAGAIN {
		return ErrAgain
	}
	if poll(); !b.state.Up {
		return ErrDown
	}
	return fmt.Errorf("%s: read: %w", kind, e)
}

// Reopening is an attempt to open the device of a port again. A goroutine makes it, because it may block.
type Reopening[D any] struct{ result chan opened[D] }

type opened[D any] struct {
	device D
	err    error
}

// Active reports whether an attempt is in progress.
func (r *Reopening[D]) Active() bool { return r.result != nil }

// Start begins an attempt.
func (r *Reopening[D]) Start(now mono.Time, b *Base, open func() (D, error)) {
	done := make(chan opened[D], 1)
	go func() {
		d, err := open()
		done <- opened[D]{d, err}
	}()
	r.result, b.Next = done, now.Add(openInterval)
}

// Finish returns the device of an attempt that has succeeded. After a failure it schedules the next attempt.
func (r *Reopening[D]) Finish(now mono.Time, b *Base) (device D, ok bool) {
	select {
	case o := <-r.result:
		r.result = nil
		if o.err != nil {
			b.Checked(now, link.State{Err: o.err}, -1)
			return device, false
		}
		b.Counters.Reopened++
		return o.device, true
	default:
		b.Next = now.Add(openInterval)
		return device, false
	}
}

// Wait waits for an attempt in progress. It returns false if there is none or the attempt has failed.
func (r *Reopening[D]) Wait() (device D, ok bool) {
	if r.result == nil {
		return device, false
	}
	o := <-r.result
	r.result = nil
	return o.device, o.err == nil
}
