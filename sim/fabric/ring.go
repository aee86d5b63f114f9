package fabric

// ring is a queue whose length is a power of two. It grows, and keeps its size.
type ring[T any] struct {
	buf     []T
	head, n uint32
}

// push appends an element, which the caller fills.
func (r *ring[T]) push() *T {
	if int(r.n) == len(r.buf) {
		r.grow()
	}
	p := r.at(r.n)
	r.n++
	return p
}

func (r *ring[T]) grow() {
	bigger := make([]T, max(8, 2*len(r.buf)))
	for i := range r.n {
		bigger[i] = *r.at(i)
	}
	r.buf, r.head = bigger, 0
}

func (r *ring[T]) at(i uint32) *T { return &r.buf[(r.head+i)&uint32(len(r.buf)-1)] }

// pop removes the oldest; there is one.
func (r *ring[T]) pop() { r.head, r.n = r.head+1, r.n-1 }

// unpush takes back what was pushed last.
func (r *ring[T]) unpush() { r.n-- }
