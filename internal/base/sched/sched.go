// Package sched chooses who sends next on a link: among thousands of queue pairs,
// those of the highest class first, then users, clients, or whatever else groups
// them, by weight, then queue pairs by turns. Nodes of one group may have ranks, of which
// the highest goes first, too: a client's own priorities, which take nothing from others. It knows packets only by their length,
// so that a NIC which builds frames and a simulated endpoint which has no bytes
// share it. Deadlines says when the timers of as many queue pairs are due, Pacer when the
// next packet of one may leave.
//
// At each level of the tree of a class it is deficit round robin (Shreedhar and
// Varghese, SIGCOMM 1995): whoever has something to send gets turns of quantum times
// weight bytes. What a turn overdraws is taken from the next one. Choosing takes
// constant time if no packet (or frame, if it is charged at once) is longer than the
// quantum; hardware has a quantum of one packet. Deficits count among nodes of one rank only.
//
//	Activate when a queue pair may have something to send
//	-> Next says whose turn it is; Charge what it has sent
//	-> Yield when it may have more, Remove when it has nothing
package sched

import "math/bits"

// Classes is the number of classes: 0 to Classes-1, of which higher ones go first. A
// class sends only while no higher one has anything to send.
const Classes = 8

// Scheduler chooses among nodes. T is what stands at the leaves of its trees, such as
// a pointer to a queue pair.
type Scheduler[T any] struct {
	quantum int
	busy    uint8 // classes that have something to send, a bit each
	classes [Classes]Node[T]
}

// Node is a queue pair, or a group of nodes that share what one gets. Its zero value
// is of no use before Init. It must not be copied.
type Node[T any] struct {
	// Item is whose node this is; groups need none.
	Item T

	parent     *Node[T] // nil for the root of a class
	next, prev *Node[T] // a ring of those of parent that are active
	last       *Node[T] // of a group: the end of the ring of its active nodes, nil if none is
	deficit    int      // bytes that may still be sent in this turn; below zero when overdrawn
	weight     int32
	class      uint8
	rank       uint8 // nodes of its group that have less send after it
	active     bool
	turn       bool // its turn has begun
}

// Init prepares a scheduler whose turns are of quantum bytes, at least one.
func (s *Scheduler[T]) Init(quantum int) {
	s.quantum = max(quantum, 1)
	for i := range s.classes {
		s.classes[i].class = uint8(i)
	}
}

// Class returns the root of class c, which is less than Classes.
func (s *Scheduler[T]) Class(c uint8) *Node[T] { return &s.classes[c] }

// Init makes n a node of parent, with a weight among the nodes of parent of at least 1.
// A group is empty then and must outlive its nodes.
func (n *Node[T]) Init(parent *Node[T], weight int, item T) {
	*n = Node[T]{Item: item, parent: parent, weight: int32(max(weight, 1)), class: parent.class}
}

// InitRanked makes n a group of parent that sends while it has something to send, before all nodes of
// parent with a lower rank; those of Init have the rank 0.
func (n *Node[T]) InitRanked(parent *Node[T], rank uint8) {
	var none T
	n.Init(parent, 1, none)
	n.rank = rank
}

// Active reports whether n may have something to send, or somebody in it may.
func (n *Node[T]) Active() bool { return n.active }

// Spent reports whether the turn of n is used up, whatever its groups have left.
func (n *Node[T]) Spent() bool { return n.deficit <= 0 }

// Activate tells that n may have something to send. It waits behind those of its
// group that already have.
func (s *Scheduler[T]) Activate(n *Node[T]) {
	for ; n.parent != nil && !n.active; n = n.parent {
		n.active = true
		n.parent.push(n)
	}
	s.busy |= 1 << n.class
}

// Remove tells that n has nothing more to send, or will not be served. What it
// overdrew it still owes.
func (s *Scheduler[T]) Remove(n *Node[T]) {
	for n.parent != nil && n.active {
		n.endTurn()
		n.active = false
		if n.parent.unlink(n); n.parent.last != nil {
			return
		}
		n = n.parent
	}
	if n.parent == nil && n.last == nil {
		s.busy &^= 1 << n.class
	}
}

// Next returns whose turn it is, nil if nobody has anything to send. It stays the same
// until Charge, Yield, Remove, or until somebody of a higher class or rank is activated.
func (s *Scheduler[T]) Next() *Node[T] {
	if s.busy == 0 {
		return nil
	}
	n := &s.classes[bits.Len8(s.busy)-1]
	for n.last != nil {
		first := n.last.next
		if !first.turn {
			first.turn = true
			first.deficit += int(first.weight) * s.quantum
		}
		if first.deficit <= 0 { // the turn pays for the one before
			first.turn = false
			n.unlink(first)
			n.push(first)
			continue
		}
		n = first
	}
	return n
}

// Charge takes n bytes that the leaf has sent from its turn and those of its groups.
func (n *Node[T]) Charge(bytes int) {
	for ; n.parent != nil; n = n.parent {
		n.deficit -= bytes
	}
}

// Yield ends the turns of n and of its groups that are used up: the next ones come
// after everybody else's. It reports whether one was.
func (s *Scheduler[T]) Yield(n *Node[T]) (ended bool) {
	for ; n.parent != nil && n.active; n = n.parent {
		if n.deficit > 0 {
			continue
		}
		ended = true
		n.endTurn()
		n.parent.unlink(n)
		n.parent.push(n)
	}
	return ended
}

// endTurn forgets what n has not used of its turn.
func (n *Node[T]) endTurn() {
	n.turn = false
	n.deficit = min(n.deficit, 0)
}

// push puts c behind those active nodes of n that are not of a lower rank.
func (n *Node[T]) push(c *Node[T]) {
	if n.last == nil {
		c.next, c.prev = c, c
		n.last = c
		return
	}
	before := n.last
	for before.rank < c.rank {
		if before = before.prev; before == n.last { // all are of a lower rank
			break
		}
	}
	c.prev, c.next = before, before.next
	c.prev.next, c.next.prev = c, c
	if before == n.last && before.rank >= c.rank {
		n.last = c
	}
}

// unlink takes c out of the active nodes of n.
func (n *Node[T]) unlink(c *Node[T]) {
	if c.next == c {
		n.last = nil
	} else {
		c.prev.next, c.next.prev = c.next, c.prev
		if n.last == c {
			n.last = c.prev
		}
	}
	c.next, c.prev = nil, nil
}
