package engine

// heap holds timers in a heap with four children per node: half as deep as a binary heap and better for caches.
type heap []entry

// entry has a copy of a timer's order, so that comparisons do not touch the timer.
type entry struct {
	at  Time
	seq uint64
	t   *Timer
}

const fanOut = 4

func (e *entry) before(f *entry) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

func (h *heap) push(t *Timer) {
	*h = append(*h, entry{})
	h.up(len(*h)-1, entry{t.at, t.seq, t})
}

func (h *heap) remove(i int) {
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = entry{}
	*h = (*h)[:last]
	switch {
	case i == last:
	case i > 0 && moved.before(&(*h)[(i-1)/fanOut]):
		h.up(i, moved)
	default:
		h.down(i, moved)
	}
}

func (h heap) up(i int, e entry) {
	for i > 0 {
		parent := (i - 1) / fanOut
		if !e.before(&h[parent]) {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, e)
}

func (h heap) down(i int, e entry) {
	for first := fanOut*i + 1; first < len(h); first = fanOut*i + 1 {
		least := first
		for c := first + 1; c < min(first+fanOut, len(h)); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(&e) {
			break
		}
		h.put(i, h[least])
		i = least
	}
	h.put(i, e)
}

func (h heap) put(i int, e entry) {
	h[i] = e
	e.t.place = int32(i + 1)
}
