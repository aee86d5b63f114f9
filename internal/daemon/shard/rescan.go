package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// rescanEvery is how often the receive queues of broken queue pairs are looked
// at. Receives are posted without a doorbell; only a broken queue pair has to
// hear of them, to flush them (IBTA vol.1 10.3.1.6).
const rescanEvery = 10 * time.Millisecond

// watched is a queue pair with a receive queue of its own.
type watched struct {
	q  *rocev2.QueuePair
	rq rocev2.RecvQueue
}

// recvPoster is a NIC that can be told of posted receives.
type recvPoster interface {
	RecvPosted(now mono.Time, q *rocev2.QueuePair)
}

// Watch makes the shard look after the receive queue of q; Unwatch ends that. Both
// are called from within Do.
func (s *Shard) Watch(q *rocev2.QueuePair, rq rocev2.RecvQueue) {
	if s.placeOf == nil {
		s.placeOf = map[*rocev2.QueuePair]int{}
	}
	s.placeOf[q] = len(s.watched)
	s.watched = append(s.watched, watched{q, rq})
}

// Unwatch ends what Watch has begun, if it has.
func (s *Shard) Unwatch(q *rocev2.QueuePair) {
	i, ok := s.placeOf[q]
	if !ok {
		return
	}
	delete(s.placeOf, q)
	last := len(s.watched) - 1
	if i != last { // one that moves may be missed by a look, and is seen by the next
		s.watched[i] = s.watched[last]
		s.placeOf[s.watched[i].q] = i
	}
	s.watched[last] = watched{}
	s.watched = s.watched[:last]
}

// rescanBudget is how many queue pairs are looked at in a turn.
const rescanBudget = 256

// rescan flushes receives of broken queue pairs if it is time to.
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

// nextScan is when rescan is due. Queue pairs break while the shard works, so after a look
// that found none the next one waits for work.
func (s *Shard) nextScan() mono.Time {
	switch {
	case s.scanning:
		return s.scanned
	case !s.broken && s.lastWork <= s.scanned && s.touched <= s.scanned:
		return mono.Never
	}
	return s.scanned.Add(rescanEvery)
}
