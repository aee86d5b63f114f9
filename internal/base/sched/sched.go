// Package sched schedules the senders of a link. Scheduler selects the next queue pair among thousands: classes have strict
// priority, groups such as users and clients share by weight, and queue pairs take turns. Nodes of one group may have
// ranks, with strict priority within the group: a client's own priorities, which take no share from other clients. The
// scheduler knows only the lengths of packets, so a NIC that builds frames and a simulated endpoint without bytes share it.
// Deadlines keeps the timers of the queue pairs, and Pacer spreads the packets of one in time.
//
// Each level of the tree of a class is a deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): an active node gets
// turns of quantum times weight bytes. A turn that sends more owes the excess to the next turn. The selection takes constant
// time if no packet (or frame, if it is charged at once) is longer than the quantum; hardware has a quantum of one packet.
// Deficits count only among nodes of one rank.
//
// The order of calls is:
//
//	Activate  // a queue pair may have packets to send
//	Next      // returns the node whose turn it is
//	Charge    // the bytes that it has sent
//	Yield     // it may have more packets; or Remove: it has none
package sched

import "math/bits"

// Classes is the number of classes, 0 to Classes-1. A class sends only while no higher class has packets.
const Classes = 8

// Scheduler selects the next sender. T is the type of the leaves of its trees, such as a pointer to a queue pair.
type Scheduler[T any] struct {
	quantum int
	busy    uint8 // bit set of the classes with active nodes
	classes [Classes]Node[T]
}

// Node is a queue pair, or a group of nodes that share one node's part. Call Init before any other method. A Node must not be
// copied.
type Node[T any] struct {
	// Item is the owner of a leaf; groups do not use it.
	Item T

	parent     *Node[T] // nil for the root of a class
	next, prev *Node[T] // ring of the active nodes of parent
	last       *Node[T] // of a group: the end of the ring of its active nodes, nil if there are none
	deficit    int      // bytes that may still be sent in this turn; below zero when overdrawn
	weight     int32
	class      uint8
	rank       uint8 // nodes of the group with a lower rank send after it
	active     bool
	turn       bool // its turn has begun
}

// Init prepares a scheduler with turns of quantum bytes, at least one.
func (s *Scheduler[T]) Init(quantum int) {
	s.quantum = max(quantum, 1)
	for i := range s.classes {
		s.classes[i].class = uint8(i)
	}
}

// Class returns the root of class c, which is less than Classes.
func (s *Scheduler[T]) Class(c uint8) *Node[T] { return &s.classes[c] }

// Init makes n an inactive node of parent with a weight, at least 1, relative to the other nodes of parent. A group must
// outlive its nodes.
func (n *Node[T]) Init(parent *Node[T], weight int, item T) {
	*n = Node[T]{Item: item, parent: parent, weight: int32(max(weight, 1)), class: parent.class}
}

// InitRanked makes n a group of parent that sends before all nodes of parent with a lower rank. Nodes of Init have rank 0.
func (n *Node[T]) InitRanked(parent *Node[T], rank uint8) {
	var none T
	n.Init(parent, 1, none)
	n.rank = rank
}

// Active reports whether n, or a node in it, may have packets to send.
func (n *Node[T]) Active() bool { return n.active }

// Spent reports whether the turn of n is used up, whatever the state of its groups.
func (n *Node[T]) Spent() bool { return n.deficit <= 0 }

// Activate marks n as having packets to send. It waits behind the active nodes of its group.
func (s *Scheduler[T]) Activate(n *Node[T]) {
	for ; n.parent != nil && !n.active; n = n.parent {
		n.active = true
		n.parent.push(n)
	}
	s.busy |= 1 << n.class
}

// Remove marks n as having no packets to send, or as not to be served. Its deficit remains.
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

// Next returns the leaf whose turn it is, nil if no node is active. The result stays the same until Charge, Yield, Remove, or
// until a node of a higher class or rank is activated.
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
		if first.deficit <= 0 { // the turn pays the excess of the one before
			first.turn = false
			n.unlink(first)
			n.push(first)
			continue
		}
		n = first
	}
	return n
}

// Charge subtracts the bytes that the leaf has sent from its turn and from those of its groups.
func (n *Node[T]) Charge(bytes int) {
	for ; n.parent != nil; n = n.parent {
		n.deficit -= bytes
	}
}

// Yield ends the turns of n and of its groups that are used up; they wait behind all other nodes. It reports whether a turn
// has ended.
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

// endTurn drops the unused part of the turn of n.
func (n *Node[T]) endTurn() {
	n.turn = false
	n.deficit = min(n.deficit, 0)
}

// push puts c behind the active nodes of n with at least its rank.
func (n *Node[T]) push(c *Node[T]) {
	if n.last == nil {
		c.next, c.prev = c, c
		n.last = c
		return
	}
	before := n.last
	for before.rank < c.rank {
		if before = before.prev; before == n.last { // all have a lower rank
			break
		}
	}
	c.prev, c.next = before, before.next
	c.prev.next, c.next.prev = c, c
	if before == n.last && before.rank >= c.rank {
		n.last = c
	}
}

// unlink removes c from the active nodes of n.
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
