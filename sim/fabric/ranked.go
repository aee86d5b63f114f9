package fabric

// ranked is a queue from which the packet with the lowest rank leaves first, of several the one
// that came first (SRPT): a heap. The order of coming stands in seq.
type ranked struct {
	heap []rankedPacket
	seq  uint64
}

type rankedPacket struct {
	Packet
	seq uint64
}

func (a *rankedPacket) before(b *rankedPacket) bool {
	return a.Rank < b.Rank || a.Rank == b.Rank && a.seq < b.seq
}

func (r *ranked) push(p *Packet) {
	r.seq++
	r.heap = append(r.heap, rankedPacket{*p, r.seq})
	h, i := r.heap, len(r.heap)-1
	for i > 0 && h[i].before(&h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
}

// pop removes the first; there is one.
func (r *ranked) pop() Packet {
	h := r.heap
	top, last := h[0].Packet, len(h)-1
	h[0] = h[last]
	h = h[:last]
	r.heap = h
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < last && h[c+1].before(&h[c]) {
			c++
		}
		if c >= last || !h[c].before(&h[i]) {
			return top
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
