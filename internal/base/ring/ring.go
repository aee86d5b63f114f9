// Package ring implements a growable FIFO ring. It grows to the largest number of elements held and allocates nothing
// afterwards.
package ring

// Ring is a queue of numbered elements. Head is the number of the oldest element, Tail that of the next one; both wrap. The
// zero value is empty.
type Ring[T any] struct {
	slots      []T // a power of two of them
	Head, Tail uint32
}

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return int(r.Tail - r.Head) }

// At returns the element with number i, from Head up to but not including Tail. The pointer is invalid after Push.
func (r *Ring[T]) At(i uint32) *T { return &r.slots[i&uint32(len(r.slots)-1)] }

// Oldest returns the element at Head, nil if the ring is empty.
func (r *Ring[T]) Oldest() *T {
	if r.Head == r.Tail {
		return nil
	}
	return r.At(r.Head)
}

// Push appends an element and returns it for the caller to set. It holds the previous content of its slot, whose memory the
// caller may reuse. Lowering Tail removes it again.
func (r *Ring[T]) Push() *T {
	if r.Len() == len(r.slots) {
		r.grow()
	}
	r.Tail++
	return r.At(r.Tail - 1)
}

func (r *Ring[T]) grow() {
	bigger := Ring[T]{slots: make([]T, max(2, 2*len(r.slots)))}
	for i := r.Head; i != r.Tail; i++ {
		*bigger.At(i) = *r.At(i)
	}
	r.slots = bigger.slots
}

// Clear removes all elements and resets the numbers to zero.
func (r *Ring[T]) Clear() { r.Head, r.Tail = 0, 0 }
