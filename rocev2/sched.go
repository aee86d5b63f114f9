package rocev2

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// defaultQuantum is what a queue pair may send in its turn, in bytes of UDP payload:
// a little more than the largest super-frame, so that one turn can always send
// one. A turn ends between frames: to cut a super-frame short would cost more than
// it is fair.
const defaultQuantum = 68 << 10

// unresolvedCheck is how often the timers of a queue pair whose peer has no address yet are
// looked at. One that could send says that it is due now, which would keep the NIC awake.
const unresolvedCheck = time.Millisecond

// machine is what the data path drives of a queue pair.
type machine interface {
	Receive(now mono.Time, p *bth.Packet, m qp.RxMeta) qp.Drop
	Doorbell(now mono.Time)
	OnCNP(now mono.Time)
	OnTimeout(now mono.Time)
	PollTransmit(now mono.Time, t *qp.Transmit) bool
	Flushed(now mono.Time)
	NextTimeout() mono.Time
	Resume(now mono.Time)
}

// schedNode is the scheduler's part of a queue pair. The zero node is idle.
type schedNode struct {
	turn       sched.Node[*QueuePair]
	timer      sched.Timer[*QueuePair]
	share      *shareGroup
	priority   uint8   // among the queue pairs of share
	unresolved *qpList // of the neighbour whose address it waits for; nil if it does not
	next, prev *QueuePair
	replaced   machine // drives the queue pair in place of its core
}

// machine returns what drives q: its core, or what a test has put in its place.
func (q *QueuePair) machine() machine {
	if q.node.replaced != nil {
		return q.node.replaced
	}
	return q.core
}

// qpList is a queue of queue pairs that wait; each is on at most one.
type qpList struct{ head, tail *QueuePair }

// pushBack appends q, which is on no list.
func (l *qpList) pushBack(q *QueuePair) {
	q.node.unresolved, q.node.prev, q.node.next = l, l.tail, nil
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
	q.node.unresolved, q.node.next, q.node.prev = nil, nil, nil
}

// scheduler chooses which queue pair sends next and when one wakes up.
type scheduler struct {
	turns     sched.Scheduler[*QueuePair]
	deadlines sched.Deadlines[*QueuePair]
	shares    map[Share]*shareGroup
	again     bool // PollTransmit stopped before everything was sent
}

func (s *scheduler) init(quantum int) {
	if quantum == 0 {
		quantum = defaultQuantum
	}
	s.turns.Init(quantum)
	s.shares = map[Share]*shareGroup{}
}

// Share says for whom a queue pair sends, and so what part of the link it gets: the
// highest class first, then users by their weights, then the clients of a user alike,
// then the queue pairs of a client by priority (AddressVector.Priority), alike if that is the same. The numbers of users and clients mean nothing
// to the NIC. Queue pairs of the zero Share are one client's.
type Share struct {
	Class  uint8 // less than sched.Classes; higher ones go first, and starve lower ones
	User   uint64
	Weight int // of the user; 0 is 1
	Client uint64
}

// shareGroup is a client, or the user that it belongs to, with something to share.
type shareGroup struct {
	node  sched.Node[*QueuePair]
	key   Share
	user  *shareGroup // of a client
	users int         // queue pairs of a client, clients of a user
	// ranked are the queue pairs of a client that have a priority, as far as there were any. Those without
	// are nodes of the client itself.
	ranked [sched.Classes]*sched.Node[*QueuePair]
}

// rank returns the group of those queue pairs of a client that have a priority.
func (g *shareGroup) rank(priority uint8) *sched.Node[*QueuePair] {
	if priority == 0 {
		return &g.node
	}
	if g.ranked[priority] == nil {
		g.ranked[priority] = new(sched.Node[*QueuePair])
		g.ranked[priority].InitRanked(&g.node, priority)
	}
	return g.ranked[priority]
}

// join makes q one of those that share what x gets.
func (s *scheduler) join(q *QueuePair, x Share) {
	x.Weight = max(x.Weight, 1)
	g := s.shares[x]
	if g == nil {
		g = &shareGroup{key: x, user: s.user(x)}
		g.node.Init(&g.user.node, 1, nil)
		s.shares[x] = g
	}
	g.users++
	q.node.share = g
	q.node.turn.Init(&g.node, 1, q)
	q.node.timer.Item = q
}

// prioritise gives q another priority among the queue pairs of its client.
func (n *NIC) prioritise(q *QueuePair, priority uint8) {
	if q.node.priority == priority {
		return
	}
	active := q.node.turn.Active()
	n.sch.turns.Remove(&q.node.turn)
	q.node.priority = priority
	q.node.turn.Init(q.node.share.rank(priority), 1, q)
	if active {
		n.sch.turns.Activate(&q.node.turn)
	}
}

// Datagrams is a SendQueue of datagrams that tells where the next one goes, so that a UD queue pair has
// its priority. Another one than what is sent then costs no more than its place in the order.
type Datagrams interface {
	// NextAH is the number of the address handle of the next request, false if none is posted.
	NextAH() (ah uint32, ok bool)
}

// prioritiseNext gives a UD queue pair the priority of its next datagram.
func (n *NIC) prioritiseNext(q *QueuePair) {
	if q.datagrams == nil {
		return
	}
	if h, ok := q.datagrams.NextAH(); ok {
		if a := n.obj.ahs.get(h); a != nil && a.pd == q.pd {
			n.prioritise(q, a.av.Priority())
		}
	}
}

// anyClient stands in Share.Client for the user alone. Clients have other numbers.
const anyClient = 1<<64 - 1

// user returns the group of the user of x for one client more.
func (s *scheduler) user(x Share) *shareGroup {
	x.Client = anyClient
	u := s.shares[x]
	if u == nil {
		u = &shareGroup{key: x}
		u.node.Init(s.turns.Class(x.Class), x.Weight, nil)
		s.shares[x] = u
	}
	u.users++
	return u
}

// leave ends what join began.
func (s *scheduler) leave(q *QueuePair) {
	for g := q.node.share; g != nil; g = g.user {
		if g.users--; g.users > 0 {
			break
		}
		delete(s.shares, g.key)
	}
	q.node.share = nil
}

// activate gives q its turns unless it waits for an address.
func (n *NIC) activate(q *QueuePair) {
	if !q.dead && q.node.unresolved == nil {
		n.sch.turns.Activate(&q.node.turn)
	}
}

// settle follows an input to q. The timer of an active queue pair is set when
// its turn ends.
func (n *NIC) settle(q *QueuePair) {
	n.activate(q)
	if !q.node.turn.Active() {
		n.rearm(q)
	}
}

// awaitPeer makes q wait for the address of its peer and reports whether it must.
// A packet that has been taken from it must leave first.
func (n *NIC) awaitPeer(now mono.Time, q *QueuePair) bool {
	nb := q.path.nb
	if q.typ == qp.UD || nb == nil || nb.state != neighIncomplete || n.net.tx.pending == q {
		return false
	}
	n.sch.turns.Remove(&q.node.turn)
	nb.unresolved.pushBack(q)
	n.rearmAfter(q, now.Add(unresolvedCheck))
	return true
}

// endTurn follows a frame of q: it has nothing more to send, or its turn and those of
// its client and user may be used up.
func (n *NIC) endTurn(q *QueuePair, drained bool) {
	if n.net.tx.pending != q {
		n.prioritiseNext(q)
	}
	switch {
	case n.net.tx.pending == q:
	case drained:
		n.sch.turns.Remove(&q.node.turn)
		n.rearm(q)
	case n.sch.turns.Yield(&q.node.turn):
		n.rearm(q)
	}
}

// unschedule ends all dealings with q, which is being destroyed or reset.
func (n *NIC) unschedule(q *QueuePair) {
	if q.node.unresolved != nil {
		q.node.unresolved.remove(q)
	}
	n.sch.turns.Remove(&q.node.turn)
	n.sch.deadlines.Remove(&q.node.timer)
	n.net.tx.drop(q)
	n.forgetKept(q, len(q.kept))
	q.defers, q.lost = nil, false
}

// rearm takes over the deadline of q.
func (n *NIC) rearm(q *QueuePair) { n.rearmAfter(q, 0) }

// rearmAfter is rearm for a deadline not before earliest.
func (n *NIC) rearmAfter(q *QueuePair, earliest mono.Time) {
	if !q.dead {
		n.sch.deadlines.Set(&q.node.timer, max(q.machine().NextTimeout(), earliest))
	}
}

// timerBudget bounds the timers that fire in one Advance. The rest is due at once.
const timerBudget = 64

// advanceQPs fires timers that are due, each queue pair at most once.
func (n *NIC) advanceQPs(now mono.Time) {
	for range timerBudget {
		t := n.sch.deadlines.Take(now)
		if t == nil {
			return
		}
		q := t.Item
		q.machine().OnTimeout(now)
		n.activate(q)
		if !q.node.turn.Active() {
			n.rearmAfter(q, now.Add(unresolvedCheck))
		}
	}
}
