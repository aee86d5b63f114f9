package rocev2

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// defaultQuantum is the number of bytes of UDP payload that a queue pair may send in its turn: a little more than the
// largest super-frame, so that one turn can always send one. A turn ends between frames, because cutting a super-frame
// short would cost more than the fairness is worth.
const defaultQuantum = 68 << 10

// unresolvedCheck is the interval at which the NIC checks the timers of a queue pair without a resolved peer. A queue
// pair that could send reports that it is due now, which would keep the NIC awake.
const unresolvedCheck = time.Millisecond

// timerBudget bounds the timers that fire in one Advance. The rest is due at once.
const timerBudget = 64

// machine is the part of a queue pair that the data path drives.
type machine interface {
	Receive(now mono.Time, p *bth.Packet, m qp.RxMeta) qp.Drop
	Doorbell(now mono.Time)
	OnCNP(now mono.Time)
	OnTimeout(now mono.Time)
	PollTransmit(now mono.Time, t *qp.Transmit) bool
	Flushed(now mono.Time)
	NextTimeout() mono.Time
	Flushing() bool
	Resume(now mono.Time)
}

// schedNode is the scheduler's part of a queue pair. The zero node is idle.
type schedNode struct {
	turn     sched.Node[*QueuePair]
	timer    sched.Timer[*QueuePair]
	queue    list.Node[*QueuePair] // in scheduler.flushing, or in flow.waiting if parked
	share    *shareGroup
	priority uint8                   // among the queue pairs of share
	parked   bool                    // waits for a turn of its client
	wait     list.Node[stack.Waiter] // for the address of the peer
	replaced machine                 // drives the queue pair in place of its core, in tests
}

// machine returns the state machine of q: its core, or the replacement of a test.
func (q *QueuePair) machine() machine {
	if q.node.replaced != nil {
		return q.node.replaced
	}
	return q.core
}

// scheduler selects the queue pair that sends next and keeps the deadlines of all.
type scheduler struct {
	turns     sched.Scheduler[*QueuePair]
	deadlines sched.Deadlines[*QueuePair]
	flushing  list.List[*QueuePair] // broken queue pairs with requests to flush
	shares    map[Share]*shareGroup
	again     bool // PollTransmit stopped before all was sent
}

func (s *scheduler) init(quantum int) {
	if quantum == 0 {
		quantum = defaultQuantum
	}
	s.turns.Init(quantum)
	s.shares = map[Share]*shareGroup{}
}

// Share names the client of a queue pair and so its part of the link: the highest class first, then users by their
// weights, then the clients of a user equally, then the queue pairs of a client by priority (AddressVector.Priority),
// equally at the same priority. The numbers of users and clients have no meaning to the NIC. All queue pairs with the
// zero Share belong to one client.
type Share struct {
	Class  uint8 // less than sched.Classes; higher ones go first and starve lower ones
	User   uint64
	Weight int // of the user; 0 is 1
	Client uint64
}

// shareGroup is a client, or the user that it belongs to.
type shareGroup struct {
	node  sched.Node[*QueuePair]
	key   Share
	user  *shareGroup // of a client
	users int         // queue pairs of a client, clients of a user
	// ranked has a node for each priority of the client's queue pairs. Queue pairs without a priority are children of node.
	ranked [sched.Classes]*sched.Node[*QueuePair]
}

// rank returns the parent of the client's queue pairs with a priority.
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

// join adds q to the queue pairs of x.
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
	q.node.queue.Item = q
	q.node.wait.Item = (*host)(q)
}

// anyClient is the Share.Client of a user's own group. Clients have other numbers.
const anyClient = 1<<64 - 1

// user returns the group of the user of x with one more client.
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

// leave undoes join.
func (s *scheduler) leave(q *QueuePair) {
	for g := q.node.share; g != nil; g = g.user {
		if g.users--; g.users > 0 {
			break
		}
		delete(s.shares, g.key)
	}
	q.node.share = nil
}

// prioritise changes the priority of q among the queue pairs of its client.
func (s *scheduler) prioritise(q *QueuePair, priority uint8) {
	if q.node.priority == priority {
		return
	}
	active := q.node.turn.Active()
	s.turns.Remove(&q.node.turn)
	q.node.priority = priority
	q.node.turn.Init(q.node.share.rank(priority), 1, q)
	if active {
		s.turns.Activate(&q.node.turn)
	}
}

// activate schedules q unless it waits for an address.
func (s *scheduler) activate(q *QueuePair) {
	if !q.dead && !q.node.wait.Listed() {
		s.turns.Activate(&q.node.turn)
	}
}

// settle follows an input to q. The end of its turn sets the timer of an active queue pair.
func (s *scheduler) settle(q *QueuePair) {
	s.activate(q)
	if !q.node.turn.Active() {
		s.rearm(q)
	}
}

// await makes q wait for the address of its peer.
func (s *scheduler) await(now mono.Time, q *QueuePair) {
	s.turns.Remove(&q.node.turn)
	q.path.Next.Wait(&q.node.wait)
	s.rearmAfter(q, now.Add(unresolvedCheck))
}

// endTurn follows a frame of q. drained: q has nothing more to send.
func (s *scheduler) endTurn(now mono.Time, q *QueuePair, drained bool) {
	if drained {
		s.turns.Remove(&q.node.turn)
		s.rearm(q)
		q.park()
		s.callWaiting(now, q.flow)
	} else if s.turns.Yield(&q.node.turn) {
		s.rearm(q)
	}
}

// remove ends the scheduling of q, which is being destroyed or reset.
func (s *scheduler) remove(q *QueuePair) {
	q.node.wait.Remove()
	s.turns.Remove(&q.node.turn)
	s.deadlines.Remove(&q.node.timer)
	q.unpark()
	q.node.queue.Remove()
}

// rearm sets the timer to the deadline of q.
func (s *scheduler) rearm(q *QueuePair) { s.rearmAfter(q, 0) }

// rearmAfter is rearm for a deadline not before earliest.
func (s *scheduler) rearmAfter(q *QueuePair, earliest mono.Time) {
	switch {
	case q.dead:
	case q.machine().Flushing():
		s.deadlines.Set(&q.node.timer, mono.Never)
		q.unpark()
		if !q.node.queue.Listed() {
			s.flushing.PushBack(&q.node.queue)
		}
	default:
		s.deadlines.Set(&q.node.timer, max(q.machine().NextTimeout(), earliest))
	}
}

// next returns when advance is due.
func (s *scheduler) next() mono.Time {
	if s.flushing.First() != nil {
		return 0
	}
	return s.deadlines.Next()
}

// advance fires timers that are due, each queue pair at most once. Then one broken queue pair flushes a batch: flushing
// must not delay other queue pairs.
func (s *scheduler) advance(now mono.Time) {
	for range timerBudget {
		t := s.deadlines.Take(now)
		if t == nil {
			break
		}
		s.timeout(now, t.Item)
	}
	if first := s.flushing.First(); first != nil {
		first.Remove()
		s.timeout(now, first.Item)
	}
}

func (s *scheduler) timeout(now mono.Time, q *QueuePair) {
	late := &q.nic.temp.Late
	late.Peer = q.peerSends()
	q.machine().OnTimeout(now)
	late.Peer = false
	s.activate(q)
	if !q.node.turn.Active() {
		s.rearmAfter(q, now.Add(unresolvedCheck))
	}
}

// peerSends reports whether the peer of q is a queue pair of the same owner with packets to send, such as an acknowledgement.
func (q *QueuePair) peerSends() bool {
	if q.typ == qp.UD || !q.path.Valid() {
		return false
	}
	to := q.nic
	if !q.path.Local() {
		to = q.nic.across(&q.path)
	}
	if to == nil {
		return false
	}
	peer := to.lookupQP(q.core.DestQPN())
	return peer != nil && (peer.node.turn.Active() || peer.node.parked)
}

// Datagrams is a SendQueue that knows the destination of its next datagram. A UD queue pair has the priority of that
// datagram. If the client replaces the datagram, the new one is sent with the priority of the old one.
type Datagrams interface {
	// NextAH returns the address handle of the next request; ok is false if none is posted.
	NextAH() (ah uint32, ok bool)
}

// prioritiseNext gives a UD queue pair the priority of its next datagram.
func (n *NIC) prioritiseNext(q *QueuePair) {
	if q.datagrams == nil {
		return
	}
	if h, ok := q.datagrams.NextAH(); ok {
		if a := n.obj.ahs.Get(h); a != nil && a.pd == q.pd {
			n.sch.prioritise(q, a.av.Priority())
		}
	}
}

// unschedule removes q, which is being destroyed or reset, from the data path.
func (n *NIC) unschedule(q *QueuePair) {
	n.sch.remove(q)
	n.tx.drop(q)
	n.dropPending(q, len(q.pending))
	q.defers, q.lost, q.wary = nil, false, false
}
