// Package list is a doubly-linked list whose nodes are part of their items, so that adding and removing allocates nothing.
package list

// Node is the place of an item in a list. It is in at most one list and must not be copied then.
type Node[T any] struct {
	Item T

	list       *List[T] // nil outside a list
	next, prev *Node[T]
}

// List is a queue of nodes. The zero List is empty.
type List[T any] struct{ head, tail *Node[T] }

// First returns the first node, nil if l is empty.
func (l *List[T]) First() *Node[T] { return l.head }

// Next returns the node after n, nil if n is the last one.
func (n *Node[T]) Next() *Node[T] { return n.next }

// PushBack appends n, which is in no list.
func (l *List[T]) PushBack(n *Node[T]) {
	n.list, n.prev = l, l.tail
	if l.tail != nil {
		l.tail.next = n
	} else {
		l.head = n
	}
	l.tail = n
}

// Listed reports whether n is in a list.
func (n *Node[T]) Listed() bool { return n.list != nil }

// Remove takes n out of its list, if it is in one.
func (n *Node[T]) Remove() {
	l := n.list
	if l == nil {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		l.head = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		l.tail = n.prev
	}
	n.list, n.next, n.prev = nil, nil, nil
}
