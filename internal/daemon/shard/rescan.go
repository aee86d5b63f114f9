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
func (st *NIC) Watch(q *rocev2.QueuePair, rq rocev2.RecvQueue) {
	if st.placeOf == nil {
		st.placeOf = map[*rocev2.QueuePair]int{}
	}
	st.placeOf[q] = len(st.watched)
	st.watched = append(st.watched, watched{q, rq})
}

// Unwatch reverses Watch. It ignores an unknown q.
func (st *NIC) Unwatch(q *rocev2.QueuePair) {
	i, ok := st.placeOf[q]
	if !ok {
		return
	}
	delete(st.placeOf, q)
	last := len(st.watched) - 1
	if i != last { // this scan may miss the moved entry; the next one sees it
		st.watched[i] = st.watched[last]
		st.placeOf[st.watched[i].q] = i
	}
	st.watched[last] = watched{}
	st.watched = st.watched[:last]
}

// rescanBudget is the number of queue pairs to check per turn.
const rescanBudget = 256

// rescan flushes receives of queue pairs in the error state when a scan is due.
func (st *NIC) rescan(now mono.Time) {
	if st.nextScan() > now {
		return
	}
	if !st.scanning {
		st.scanned, st.seen, st.broken = now, 0, false
	}
	end := min(st.seen+rescanBudget, len(st.watched))
	for _, w := range st.watched[min(st.seen, end):end] {
		if w.q.State() != qp.Err {
			continue
		}
		st.broken = true
		if w.rq.Len() > 0 {
			st.poster.RecvPosted(now, w.q)
		}
	}
	st.seen, st.scanning = end, end < len(st.watched)
}

// nextScan returns the time of the next scan. Queue pairs enter the error state only while the shard works. After a
// scan that found none, the next scan waits for work.
func (st *NIC) nextScan() mono.Time {
	switch {
	case st.scanning:
		return st.scanned
	case !st.broken && st.shard.lastWork <= st.scanned && st.shard.touched <= st.scanned:
		return mono.Never
	}
	return st.scanned.Add(rescanEvery)
}
