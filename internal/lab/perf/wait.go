package perf

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// maxSleep is the maximum sleep in a completion channel. After it the caller checks for notes of the peer and for losses.
const maxSleep = 50 * time.Millisecond

// yield gives the core to the daemon, which may need the same core.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// rest backs off after the n-th empty poll in a row, in tests that do not measure latency. A client that spins takes
// the core from the daemons. On two cores that costs two fifths of the bandwidth.
func rest(n int) {
	if n < 8 {
		yield()
		return
	}
	ts := unix.NsecToTimespec(int64(20 * time.Microsecond))
	// A raw system call: with time.Sleep, the Go runtime would wake another thread to look for work. An early return
	// is harmless.
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// pause backs off after the n-th empty poll in a row. It returns an error at once if this side must end; otherwise
// the caller polls again.
func (s *side) pause(n int, queues ...*verbs.CQ) error {
	if err := s.oob.ctx.Err(); err != nil {
		return err
	}
	if !s.Events {
		rest(n)
		return nil
	}
	return s.sleep(queues)
}

// sleep arms the queues that are not armed. If all are armed, it waits for a completion event. The caller must poll
// between two calls: completions before the arming cause no event.
func (s *side) sleep(queues []*verbs.CQ) error {
	fresh := false
	for _, q := range queues {
		if s.armed[q] {
			continue
		}
		if err := q.ReqNotify(false); err != nil {
			return err
		}
		s.armed[q], fresh = true, true
	}
	if fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.oob.ctx, maxSleep)
	defer cancel()
	q, err := s.channel.Next(ctx)
	switch {
	case err == nil:
		s.armed[q] = false
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return s.oob.ctx.Err()
	}
	return err
}

// poll polls completions. It returns an error if one of them failed.
func poll(q *verbs.CQ, wcs []verbs.WC) (int, error) {
	n, err := q.Poll(wcs)
	if err != nil {
		return 0, err
	}
	for i := range wcs[:n] {
		if err := wcs[i].Err(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// post posts work requests on a lane. The caller ensures that there is room. post retries on a full queue: a
// completion can be visible before its slot is free.
func (s *side) post(l *lane, wrs []verbs.SendWR) error {
	for {
		n, err := l.q.PostSendN(wrs)
		if !errors.Is(err, verbs.ErrQueueFull) {
			return err
		}
		wrs = wrs[n:]
		if err := s.oob.ctx.Err(); err != nil {
			return err
		}
		yield()
	}
}

// feed refills the receive queue of a lane if it has room for at least some receives.
func (s *side) feed(l *lane, some int) error {
	room := s.RxDepth - int(l.fed-l.recvd)
	if room < some {
		return nil
	}
	for room > 0 {
		k := min(room, len(l.recvs))
		for i := range k {
			l.recvSGEs[i] = s.mr.SGE(s.in(l, l.fed+uint64(i)), s.stride)
			l.recvs[i] = verbs.RecvWR{WRID: uint64(l.index), SGEs: l.recvSGEs[i : i+1]}
		}
		if _, err := l.q.PostRecvN(l.recvs[:k]); err != nil {
			return err
		}
		l.fed += uint64(k)
		room -= k
	}
	return nil
}

// refill returns the number of receives in one post.
func (s *side) refill() int { return min(recvBatch, max(1, s.RxDepth/4)) }
