// Package ring has the queue of everything that comes and goes in order: it grows to what it
// has held at most, and then allocates nothing.
package ring

// Ring is a queue of elements with numbers, which run freely: Head is that of the oldest, Tail
// that of the next. The zero value is empty.
type Ring[T any] struct {
	slots      []T // their number is a power of two
	Head, Tail uint32
}

// Len is the number of elements.
func (r *Ring[T]) Len() int { return int(r.Tail - r.Head) }

// At is the element with number i, from Head on and before Tail. It moves when others are
// pushed.
func (r *Ring[T]) At(i uint32) *T { return &r.slots[i&uint32(len(r.slots)-1)] }

// Oldest is the element at Head, nil if there is none.
func (r *Ring[T]) Oldest() *T {
	if r.Head == r.Tail {
		return nil
	}
	return r.At(r.Head)
}

// Push appends an element for the caller to set. It is what has been in its place before,
// whose memory may be used again. Lowering Tail takes it back.
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

// Clear removes all elements and begins to count anew.
func (r *Ring[T]) Clear() { r.Head, r.Tail = 0, 0 }
