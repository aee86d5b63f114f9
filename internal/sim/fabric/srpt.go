package fabric

import "roced.io/roced/internal/sim/engine"

// ranked is a heap of packets: the lowest rank leaves first; among equal ranks, the oldest packet (SRPT).
type ranked struct {
	heap []*Packet
	seq  engine.Time
}

func (r *ranked) len() int { return len(r.heap) }

func (r *ranked) each(do func(*Packet)) {
	for _, p := range r.heap {
		do(p)
	}
}

func earlier(a, b *Packet) bool { return a.Rank < b.Rank || a.Rank == b.Rank && a.then < b.then }

func (r *ranked) push(p *Packet) {
	r.seq++
	p.then = r.seq
	r.heap = append(r.heap, p)
	h, i := r.heap, len(r.heap)-1
	for i > 0 && earlier(h[i], h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
}

// pop removes the first packet; the heap must not be empty.
func (r *ranked) pop() *Packet {
	h := r.heap
	top, last := h[0], len(h)-1
	h[0], h[last] = h[last], nil
	h = h[:last]
	r.heap = h
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < last && earlier(h[c+1], h[c]) {
			c++
		}
		if c >= last || !earlier(h[c], h[i]) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
