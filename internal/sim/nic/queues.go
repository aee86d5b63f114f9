package nic

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/qp"
)

// sendQueue is a ring of send work requests: Head is the oldest that is not retired, taken the next to send, Tail
// the next free slot.
type sendQueue struct {
	ring.Ring[qp.SendWQE]
	taken uint32
	first bth.PSN // of the oldest request that is not retired
	bytes uint64  // of requests that are not retired
}

func (s *sendQueue) push(w qp.SendWQE) {
	*s.Push() = w
	s.bytes += uint64(w.Length)
}

// next copies the next request to w and reuses its slices.
func (s *sendQueue) next(w *qp.SendWQE) bool {
	if s.taken == s.Tail {
		return false
	}
	from := s.At(s.taken)
	elements, inline := append(w.SGEs[:0], from.SGEs...), append(w.Inline[:0], from.Inline...)
	*w = *from
	if w.SGEs, w.Inline = elements, inline; len(elements) == 0 && len(inline) == 0 {
		w.SGEs = append(elements, qp.SGE{Length: w.Length})
	}
	s.taken++
	return true
}

func (s *sendQueue) retire(n int, mtu uint16) {
	for range n {
		length := s.At(s.Head).Length
		s.bytes -= uint64(length)
		s.first = s.first.Add(int(max((length+uint32(mtu)-1)/uint32(mtu), 1)))
		s.Head++
	}
}

// remaining returns the bytes of all requests from packet psn on.
func (s *sendQueue) remaining(psn bth.PSN, mtu uint16) uint32 {
	before := uint64(max(psn.Diff(s.first), 0)) * uint64(mtu)
	return uint32(min(s.bytes-min(before, s.bytes), 1<<32-1))
}

// clear forgets all requests.
func (s *sendQueue) clear() {
	s.Clear()
	s.taken, s.bytes = 0, 0
}

// RecvWR is a receive work request.
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

// Len returns the number of posted receives.
func (r *Receives) Len() int { return len(r.wrs) - r.next }

func (r *Receives) take() (RecvWR, bool) {
	if r.Len() == 0 {
		return RecvWR{}, false
	}
	r.next++
	return r.wrs[r.next-1], true
}
