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
func (n *NIC) Watch(q *rocev2.QueuePair, rq rocev2.RecvQueue) {
	if n.indexOf == nil {
		n.indexOf = map[*rocev2.QueuePair]int{}
	}
	n.indexOf[q] = len(n.watched)
	n.watched = append(n.watched, watched{q, rq})
}

// Unwatch reverses Watch. It ignores an unknown q.
func (n *NIC) Unwatch(q *rocev2.QueuePair) {
	i, ok := n.indexOf[q]
	if !ok {
		return
	}
	delete(n.indexOf, q)
	last := len(n.watched) - 1
	if i != last { // this scan may miss the moved entry; the next one sees it
		n.watched[i] = n.watched[last]
		n.indexOf[n.watched[i].q] = i
	}
	n.watched[last] = watched{}
	n.watched = n.watched[:last]
}

// rescanBudget is the number of queue pairs to check per turn.
const rescanBudget = 256

// rescan flushes receives of queue pairs in the error state when a scan is due.
func (n *NIC) rescan(now mono.Time) {
	if n.nextScan() > now {
		return
	}
	if !n.scanning {
		n.scanned, n.seen, n.broken = now, 0, false
	}
	end := min(n.seen+rescanBudget, len(n.watched))
	for _, w := range n.watched[min(n.seen, end):end] {
		if w.q.State() != qp.Err {
			continue
		}
		n.broken = true
		if w.rq.Len() > 0 {
			n.poster.RecvPosted(now, w.q)
		}
	}
	n.seen, n.scanning = end, end < len(n.watched)
}

// nextScan returns the time of the next scan. Queue pairs enter the error state only while the shard works. After a
// scan that found none, the next scan waits for work.
func (n *NIC) nextScan() mono.Time {
	switch {
	case n.scanning:
		return n.scanned
	case !n.broken && n.shard.lastWork <= n.scanned && n.shard.touched <= n.scanned:
		return mono.Never
	}
	return n.scanned.Add(rescanEvery)
}
