// Package queue implements the queues of a NIC's client in slices: for a client in the same goroutine, such as rocedrill's
// agent and tests of whole NICs. Nothing here locks.
//
// No promise: this package may change between releases.
package queue

import (
	"errors"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// ErrFull is returned when a queue has no room for another work request.
var ErrFull = errors.New("queue: no room for another work request")

// Send is a rocev2.SendQueue in a slice. A request occupies a place from Post until the NIC retires it.
type Send struct {
	ring  []qp.SendWQE
	head  uint64 // oldest request that is not retired
	taken uint64 // next request that the NIC takes
	tail  uint64 // next request to post
}

// NewSend returns a queue of n places.
func NewSend(n int) *Send { return &Send{ring: make([]qp.SendWQE, n)} }

// Post appends a request. It sets Length to the sum of the elements or to the length of inline data.
func (q *Send) Post(w qp.SendWQE) error {
	if q.tail-q.head == uint64(len(q.ring)) {
		return ErrFull
	}
	w.Length = uint32(len(w.Inline))
	if w.Flags&qp.SendInline == 0 {
		w.Length = 0
		for _, s := range w.SGEs {
			w.Length += s.Length
		}
	}
	return q.PostRaw(w)
}

// PostRaw appends a request unchecked; it may be malformed.
func (q *Send) PostRaw(w qp.SendWQE) error {
	if q.tail-q.head == uint64(len(q.ring)) {
		return ErrFull
	}
	copySend(&q.ring[q.tail%uint64(len(q.ring))], &w)
	q.tail++
	return nil
}

// copySend copies w and reuses the slices of to.
func copySend(to, w *qp.SendWQE) {
	sges, inline := append(to.SGEs[:0], w.SGEs...), append(to.Inline[:0], w.Inline...)
	*to = *w
	to.SGEs, to.Inline = sges, inline
}

// Next implements rocev2.SendQueue.
func (q *Send) Next(w *qp.SendWQE) bool {
	if q.taken == q.tail {
		return false
	}
	copySend(w, &q.ring[q.taken%uint64(len(q.ring))])
	q.taken++
	return true
}

// NextAH implements rocev2.Datagrams.
func (q *Send) NextAH() (ah uint32, ok bool) {
	return q.ring[q.taken%uint64(len(q.ring))].AH, q.Pending()
}

// Pending implements rocev2.SendQueue.
func (q *Send) Pending() bool { return q.taken != q.tail }

// Retire implements rocev2.SendQueue. Retiring more than was taken is an error of the NIC.
func (q *Send) Retire(n int) {
	if n < 0 || uint64(n) > q.taken-q.head {
		panic("queue: more send requests retired than taken")
	}
	q.head += uint64(n)
}

// Reset implements rocev2.SendQueue.
func (q *Send) Reset() { q.head, q.taken = q.tail, q.tail }

// Outstanding returns the number of places in use.
func (q *Send) Outstanding() int { return int(q.tail - q.head) }

// Recv is a rocev2.RecvQueue in a slice.
type Recv struct {
	ring       []qp.RecvWQE
	head, tail uint64
}

// NewRecv returns a queue of n places.
func NewRecv(n int) *Recv { return &Recv{ring: make([]qp.RecvWQE, n)} }

// Post appends a request.
func (q *Recv) Post(w qp.RecvWQE) error {
	if q.Len() == len(q.ring) {
		return ErrFull
	}
	e := &q.ring[q.tail%uint64(len(q.ring))]
	e.WRID, e.SGEs = w.WRID, append(e.SGEs[:0], w.SGEs...)
	q.tail++
	return nil
}

// Next implements rocev2.RecvQueue.
func (q *Recv) Next(w *qp.RecvWQE) bool {
	if q.head == q.tail {
		return false
	}
	e := &q.ring[q.head%uint64(len(q.ring))]
	w.WRID, w.SGEs = e.WRID, append(w.SGEs[:0], e.SGEs...)
	q.head++
	return true
}

// Len implements rocev2.RecvQueue.
func (q *Recv) Len() int { return int(q.tail - q.head) }

// Reset implements rocev2.RecvQueue.
func (q *Recv) Reset() { q.head = q.tail }

// Ring is a rocev2.CompletionRing in a slice.
type Ring struct {
	rocev2.Arming
	max   int
	ready []qp.CQE
}

// NewRing returns a ring of n places.
func NewRing(n int) *Ring { return &Ring{max: n} }

// Push implements rocev2.CompletionRing.
func (r *Ring) Push(c *qp.CQE) bool {
	if len(r.ready) >= r.max {
		return false
	}
	r.ready = append(r.ready, *c)
	return true
}

// Len returns the number of available completions.
func (r *Ring) Len() int { return len(r.ready) }

// Poll takes the oldest completion.
func (r *Ring) Poll() (c qp.CQE, ok bool) {
	if len(r.ready) == 0 {
		return c, false
	}
	c = r.ready[0]
	r.ready = r.ready[1:]
	return c, true
}

// PollAll takes all completions.
func (r *Ring) PollAll() []qp.CQE {
	c := r.ready
	r.ready = nil
	return c
}
