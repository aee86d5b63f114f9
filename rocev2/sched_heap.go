package rocev2

import "roced/mono"

// deadlineHeap is a binary heap of queue pairs by deadline. Each queue pair knows
// its place (schedNode.heapIndex). An entry's instant may be earlier than the
// queue pair's deadline, never later.
type deadlineHeap struct{ entries []deadline }

type deadline struct {
	at mono.Time
	q  *QueuePair
}

// next returns the earliest deadline, mono.Never if there is none. It first brings
// entries at the top whose deadlines have moved to where they belong.
func (h *deadlineHeap) next() mono.Time {
	for len(h.entries) > 0 {
		top := &h.entries[0]
		switch due := top.q.node.due; {
		case due == top.at:
			return due
		case due == mono.Never:
			h.remove(0)
		default:
			top.at = due
			h.down(0)
		}
	}
	return mono.Never
}

// push adds q, which is not in the heap, at its deadline.
func (h *deadlineHeap) push(q *QueuePair) {
	h.entries = append(h.entries, deadline{q.node.due, q})
	q.node.heapIndex = len(h.entries)
	h.up(len(h.entries) - 1)
}

// remove takes out entry i.
func (h *deadlineHeap) remove(i int) {
	last := len(h.entries) - 1
	h.entries[i].q.node.heapIndex = 0
	if i != last {
		h.entries[i] = h.entries[last]
		h.entries[i].q.node.heapIndex = i + 1
	}
	h.entries[last] = deadline{}
	h.entries = h.entries[:last]
	if i != last {
		h.down(i)
		h.up(i)
	}
}

func (h *deadlineHeap) swap(i, j int) {
	e := h.entries
	e[i], e[j] = e[j], e[i]
	e[i].q.node.heapIndex, e[j].q.node.heapIndex = i+1, j+1
}

func (h *deadlineHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.entries[parent].at <= h.entries[i].at {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *deadlineHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.entries) {
			return
		}
		if c+1 < len(h.entries) && h.entries[c+1].at < h.entries[c].at {
			c++
		}
		if h.entries[i].at <= h.entries[c].at {
			return
		}
		h.swap(i, c)
		i = c
	}
}
