package nic

import "roced/qp"

// sendQueue is a ring of send work requests: retired ... taken ... posted.
type sendQueue struct {
	ring                   []qp.SendWQE // its length is a power of two
	retired, taken, posted uint32
	bytes                  uint64 // of those that are not retired
}

func (s *sendQueue) at(i uint32) *qp.SendWQE { return &s.ring[i&uint32(len(s.ring)-1)] }

func (s *sendQueue) push(w qp.SendWQE) {
	if s.posted-s.retired == uint32(len(s.ring)) {
		bigger := sendQueue{ring: make([]qp.SendWQE, max(1, 2*len(s.ring)))}
		for i := s.retired; i != s.posted; i++ {
			*bigger.at(i) = *s.at(i)
		}
		s.ring = bigger.ring
	}
	*s.at(s.posted) = w
	s.posted++
	s.bytes += uint64(w.Length)
}

// next copies the next request into w, whose slices it keeps.
func (s *sendQueue) next(w *qp.SendWQE) bool {
	if s.taken == s.posted {
		return false
	}
	from := s.at(s.taken)
	elements, inline := append(w.SGEs[:0], from.SGEs...), append(w.Inline[:0], from.Inline...)
	*w = *from
	if w.SGEs, w.Inline = elements, inline; len(elements) == 0 && len(inline) == 0 {
		w.SGEs = append(elements, qp.SGE{Length: w.Length})
	}
	s.taken++
	return true
}

func (s *sendQueue) retire(n int) {
	for range n {
		s.bytes -= uint64(s.at(s.retired).Length)
		s.retired++
	}
}

// RecvWR is a receive: where a message goes.
type RecvWR struct {
	ID     uint64
	Addr   uint64
	Length uint32
}

// Receives is a queue of receives, of one queue pair or shared by several (SRQ).
type Receives struct {
	wrs  []RecvWR
	next int
}

// Post appends a receive.
func (r *Receives) Post(w RecvWR) {
	if r.next > 64 && r.next > len(r.wrs)/2 {
		r.wrs = r.wrs[:copy(r.wrs, r.wrs[r.next:])]
		r.next = 0
	}
	r.wrs = append(r.wrs, w)
}

// Len is how many there are.
func (r *Receives) Len() int { return len(r.wrs) - r.next }

func (r *Receives) take() (RecvWR, bool) {
	if r.Len() == 0 {
		return RecvWR{}, false
	}
	r.next++
	return r.wrs[r.next-1], true
}
