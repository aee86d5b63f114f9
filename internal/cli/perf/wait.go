package perf

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// doze is the longest sleep in a completion channel: whoever sleeps looks around
// that often, for notes of the peer and for what has been lost.
const doze = 50 * time.Millisecond

// yield gives the core to the daemon, which may need this very one.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// rest follows the n-th poll in a row that found nothing, where latency does not
// count. A client that keeps polling takes the core from the daemons that do the
// work: on two cores that cost two fifths of the bandwidth.
func rest(n int) {
	if n < 8 {
		yield()
		return
	}
	ts := unix.NsecToTimespec(int64(20 * time.Microsecond))
	// Not by way of the Go runtime: it would wake another thread to look for work
	// in the meantime. A shorter sleep does no harm.
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// pause follows the n-th look in a row that found nothing. It returns at once if
// this side has to end; otherwise whoever calls looks again.
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

// sleep arms queues that are not armed, and otherwise waits until one of them has
// a completion. Whoever calls has to look for completions between the two: those
// that came before a queue was armed cause no event.
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
	ctx, cancel := context.WithTimeout(s.oob.ctx, doze)
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

// poll takes completions, all of which have to be good.
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

// post posts work requests on a lane. The caller knows that there is room, or
// will be in a moment: a completion can be seen before its place is free.
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

// feed fills the receive queue of a lane if there is room for some receives at
// least.
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

// refill is how many receives are posted at once.
func (s *side) refill() int { return min(recvBatch, max(1, s.RxDepth/4)) }
