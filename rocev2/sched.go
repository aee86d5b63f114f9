package rocev2

import (
	"time"

	"roced/bth"
	"roced/mono"
	"roced/qp"
)

// quantum is what a queue pair may send in its turn, in bytes of UDP payload:
// a little more than the largest super-frame, so that one turn can always send
// one. What a turn overdraws is taken from the next (deficit round robin).
const quantum = 68 << 10

// parkedCheck is how often the timers of a parked queue pair are looked at. One
// that could send says that it is due now, which would keep the NIC awake.
const parkedCheck = time.Millisecond

// machine is what the data path drives of a queue pair.
type machine interface {
	Receive(now mono.Time, p *bth.Packet, m qp.RxMeta) qp.Drop
	Doorbell(now mono.Time)
	OnCNP(now mono.Time)
	OnTimeout(now mono.Time)
	PollTransmit(now mono.Time, t *qp.Transmit) bool
	Flushed(now mono.Time)
	NextTimeout() mono.Time
}

// schedNode is the scheduler's part of a queue pair. The zero node is idle.
type schedNode struct {
	list       *qpList // the list that the queue pair is on; nil when idle
	next, prev *QueuePair
	turn       bool      // its turn has begun
	deficit    int       // bytes that it may still send in this turn
	due        mono.Time // when its timer is due
	heapIndex  int       // place in the heap plus one; 0 when not there
	replaced   machine   // drives the queue pair in place of its core
}

// machine returns what drives q: its core, or what a test has put in its place.
func (q *QueuePair) machine() machine {
	if q.node.replaced != nil {
		return q.node.replaced
	}
	return q.core
}

// qpList is a queue of queue pairs; each is on at most one.
type qpList struct{ head, tail *QueuePair }

// pushBack appends q, which is on no list.
func (l *qpList) pushBack(q *QueuePair) {
	q.node.list, q.node.prev, q.node.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.node.next = q
	} else {
		l.head = q
	}
	l.tail = q
}

// remove takes q off the list, on which it is.
func (l *qpList) remove(q *QueuePair) {
	if q.node.prev != nil {
		q.node.prev.node.next = q.node.next
	} else {
		l.head = q.node.next
	}
	if q.node.next != nil {
		q.node.next.node.prev = q.node.prev
	} else {
		l.tail = q.node.prev
	}
	q.node.list, q.node.next, q.node.prev = nil, nil, nil
}

// scheduler chooses which queue pair sends next and when one wakes up.
type scheduler struct {
	active    qpList // may have something to send; the head has the turn
	deadlines deadlineHeap
	again     bool // PollTransmit stopped before everything was sent
}

// activate puts q on the active list unless it waits for an address.
func (n *NIC) activate(q *QueuePair) {
	if q.dead || q.node.list != nil {
		return
	}
	q.node.turn = false
	n.sch.active.pushBack(q)
}

// settle follows an input to q. The timer of an active queue pair is set when
// its turn ends.
func (n *NIC) settle(q *QueuePair) {
	n.activate(q)
	if q.node.list != &n.sch.active {
		n.rearm(q)
	}
}

// park makes q wait for the address of its peer and reports whether it must.
// A packet that has been taken from it must leave first.
func (n *NIC) park(now mono.Time, q *QueuePair) bool {
	nb := q.path.nb
	if q.typ == qp.UD || nb == nil || nb.state != neighIncomplete || n.net.tx.pending == q {
		return false
	}
	n.sch.active.remove(q)
	nb.parked.pushBack(q)
	n.rearmAfter(q, now.Add(parkedCheck))
	return true
}

// startTurn gives the head of the active list its quantum once a turn.
func (s *scheduler) startTurn(q *QueuePair) {
	if !q.node.turn {
		q.node.turn = true
		q.node.deficit = min(q.node.deficit, 0) + quantum
	}
}

// endTurn takes q off the active list when it has nothing more to send, and moves
// it to the end when it has used its quantum.
func (n *NIC) endTurn(q *QueuePair, drained bool) {
	if n.net.tx.pending == q || !drained && q.node.deficit > 0 {
		return
	}
	n.sch.active.remove(q)
	q.node.turn = false
	if drained {
		q.node.deficit = 0
	} else {
		n.sch.active.pushBack(q)
	}
	n.rearm(q)
}

// unschedule ends all dealings with q, which is being destroyed.
func (n *NIC) unschedule(q *QueuePair) {
	if q.node.list != nil {
		q.node.list.remove(q)
	}
	if q.node.heapIndex != 0 {
		n.sch.deadlines.remove(q.node.heapIndex - 1)
	}
	n.net.tx.drop(q)
}

// rearm takes over the deadline of q. An entry whose deadline has moved later
// stays where it is until it comes to the top.
func (n *NIC) rearm(q *QueuePair) { n.rearmAfter(q, 0) }

// rearmAfter is rearm for a deadline not before earliest.
func (n *NIC) rearmAfter(q *QueuePair, earliest mono.Time) {
	if q.dead {
		return
	}
	q.node.due = max(q.machine().NextTimeout(), earliest)
	h := &n.sch.deadlines
	switch i := q.node.heapIndex - 1; {
	case i < 0 && q.node.due != mono.Never:
		h.push(q)
	case i >= 0 && q.node.due < h.entries[i].at:
		h.entries[i].at = q.node.due
		h.up(i)
	}
}

// advanceQPs fires the timers that are due, each queue pair at most once.
func (n *NIC) advanceQPs(now mono.Time) {
	h := &n.sch.deadlines
	for h.next() <= now {
		q := h.entries[0].q
		h.remove(0)
		q.machine().OnTimeout(now)
		n.activate(q)
		if q.node.list != &n.sch.active {
			n.rearmAfter(q, now.Add(parkedCheck))
		}
	}
}
