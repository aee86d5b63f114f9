package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// rescanEvery is the interval between checks of the receive queues of queue pairs in the error state. Clients post
// receives without a doorbell; only a queue pair in the error state needs a notification, to flush them (IBTA vol.1
// 10.3.1.6).
const rescanEvery = 10 * time.Millisecond

// watched is a queue pair with its own receive queue.
type watched struct {
	q  *rocev2.QueuePair
	rq rocev2.RecvQueue
}

// recvPoster is the part of a NIC that accepts notifications of posted receives.
type recvPoster interface {
	RecvPosted(now mono.Time, q *rocev2.QueuePair)
}

// Watch adds the receive queue of q to the periodic checks; Unwatch removes it. Call both from within Do.
func (s *Shard) Watch(q *rocev2.QueuePair, rq rocev2.RecvQueue) {
	if s.placeOf == nil {
		s.placeOf = map[*rocev2.QueuePair]int{}
	}
	s.placeOf[q] = len(s.watched)
	s.watched = append(s.watched, watched{q, rq})
}

// Unwatch reverses Watch. It ignores an unknown q.
func (s *Shard) Unwatch(q *rocev2.QueuePair) {
	i, ok := s.placeOf[q]
	if !ok {
		return
	}
	delete(s.placeOf, q)
	last := len(s.watched) - 1
	if i != last { // this scan may miss the moved entry; the next one sees it
		s.watched[i] = s.watched[last]
		s.placeOf[s.watched[i].q] = i
	}
	s.watched[last] = watched{}
	s.watched = s.watched[:last]
}

// rescanBudget is the number of queue pairs to check per turn.
const rescanBudget = 256

// rescan flushes receives of queue pairs in the error state when a scan is due.
func (s *Shard) rescan(now mono.Time) {
	if s.nextScan() > now {
		return
	}
	if !s.scanning {
		s.scanned, s.seen, s.broken = now, 0, false
	}
	end := min(s.seen+rescanBudget, len(s.watched))
	for _, w := range s.watched[min(s.seen, end):end] {
		if w.q.State() != qp.Err {
			continue
		}
		s.broken = true
		if w.rq.Len() > 0 {
			s.poster.RecvPosted(now, w.q)
		}
	}
	s.seen, s.scanning = end, end < len(s.watched)
}

// nextScan returns the time of the next scan. Queue pairs enter the error state only while the shard works. After a
// scan that found none, the next scan waits for work.
func (s *Shard) nextScan() mono.Time {
	switch {
	case s.scanning:
		return s.scanned
	case !s.broken && s.lastWork <= s.scanned && s.touched <= s.scanned:
		return mono.Never
	}
	return s.scanned.Add(rescanEvery)
}
