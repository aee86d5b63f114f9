package shard

import (
	"slices"
	"time"

	"roced/mono"
	"roced/qp"
	"roced/rocev2"
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
	s.watched = append(s.watched, watched{q, rq})
}

// Unwatch ends what Watch has begun, if it has.
func (s *Shard) Unwatch(q *rocev2.QueuePair) {
	i := slices.IndexFunc(s.watched, func(w watched) bool { return w.q == q })
	if i < 0 {
		return
	}
	last := len(s.watched) - 1
	s.watched[i], s.watched[last] = s.watched[last], watched{}
	s.watched = s.watched[:last]
}

// rescan flushes receives of broken queue pairs if it is time to, and returns when
// it wants to look again. Queue pairs break while the shard works, so after a look
// that found none the next one waits for work.
func (s *Shard) rescan(now mono.Time) mono.Time {
	if s.poster == nil || !s.broken && s.lastWork <= s.scanned {
		return mono.Never
	}
	if due := s.scanned.Add(rescanEvery); now < due {
		return due
	}
	s.scanned, s.broken = now, false
	for i := range s.watched {
		w := &s.watched[i]
		if w.q.State() != qp.Err {
			continue
		}
		s.broken = true
		if w.rq.Len() > 0 {
			s.poster.RecvPosted(now, w.q)
		}
	}
	if s.broken {
		return now.Add(rescanEvery)
	}
	return mono.Never
}
