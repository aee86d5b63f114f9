package sched

import "roced.io/roced/plugin/mono"

// Deadlines finds the earliest of many timers. It is a heap with four children per node, half as deep as a binary heap and
// with better cache locality. Moving a deadline later, as each acknowledgement does with that of a queue pair, costs nothing
// until the old instant has passed.
type Deadlines[T any] struct{ heap []deadline[T] }

// Timer is one timer of a Deadlines. It must not be copied while it is set.
type Timer[T any] struct {
	Item T // the owner

	due   mono.Time
	place int32 // index in the heap plus one; 0 if it is not in the heap
}

// deadline is an entry of the heap. at is never later than the timer's due.
type deadline[T any] struct {
	at mono.Time
	t  *Timer[T]
}

const fanOut = 4

// Set sets the due time of t; mono.Never stops the timer.
func (d *Deadlines[T]) Set(t *Timer[T], due mono.Time) {
	t.due = due
	switch i := int(t.place) - 1; {
	case i < 0 && due != mono.Never:
		d.heap = append(d.heap, deadline[T]{})
		d.up(len(d.heap)-1, deadline[T]{due, t})
	case i >= 0 && due < d.heap[i].at:
		d.up(i, deadline[T]{due, t})
	}
}

// Next returns the due time of the earliest timer, mono.Never if no timer is set.
func (d *Deadlines[T]) Next() mono.Time {
	for len(d.heap) > 0 {
		top := d.heap[0]
		switch {
		case top.t.due == top.at:
			return top.at
		case top.t.due == mono.Never:
			d.Remove(top.t)
		default:
			d.down(0, deadline[T]{top.t.due, top.t})
		}
	}
	return mono.Never
}

// Take stops a timer that is due and returns it, nil if no timer is due.
func (d *Deadlines[T]) Take(now mono.Time) *Timer[T] {
	if d.Next() > now || len(d.heap) == 0 {
		return nil
	}
	t := d.heap[0].t
	d.Remove(t)
	return t
}

// Remove stops t and removes it from the heap.
func (d *Deadlines[T]) Remove(t *Timer[T]) {
	i, last := int(t.place)-1, len(d.heap)-1
	if i < 0 {
		return
	}
	moved := d.heap[last]
	d.heap[last] = deadline[T]{}
	d.heap = d.heap[:last]
	t.place = 0
	switch {
	case i == last:
	case i > 0 && moved.at < d.heap[(i-1)/fanOut].at:
		d.up(i, moved)
	default:
		d.down(i, moved)
	}
}

// Len returns the number of timers in the heap, including those that Set has stopped.
func (d *Deadlines[T]) Len() int { return len(d.heap) }

// up puts e, which may be earlier than its parent, at index i.
func (d *Deadlines[T]) up(i int, e deadline[T]) {
	for i > 0 {
		parent := (i - 1) / fanOut
		if d.heap[parent].at <= e.at {
			break
		}
		d.put(i, d.heap[parent])
		i = parent
	}
	d.put(i, e)
}

// down puts e, which may be later than its children, at index i.
func (d *Deadlines[T]) down(i int, e deadline[T]) {
	for {
		first := fanOut*i + 1
		if first >= len(d.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+fanOut, len(d.heap)); c++ {
			if d.heap[c].at < d.heap[least].at {
				least = c
			}
		}
		if e.at <= d.heap[least].at {
			break
		}
		d.put(i, d.heap[least])
		i = least
	}
	d.put(i, e)
}

func (d *Deadlines[T]) put(i int, e deadline[T]) {
	d.heap[i] = e
	e.t.place = int32(i + 1)
}
