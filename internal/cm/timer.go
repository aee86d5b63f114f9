package cm

import (
	"container/heap"
	"time"

	"roced.io/roced/plugin/mono"
)

// maxTimeout bounds the timeout codes that a peer may impose: 69 s.
const maxTimeout = 24

// timeout is the duration of a timeout code, 4.096 us * 2^n (IBTA vol.1 12.7.4).
func timeout(code uint8) time.Duration { return 4096 << min(code, maxTimeout) }

// timer is a deadline of a Conn or SIDR. The zero timer is not armed.
type timer struct {
	at    mono.Time
	index int // place in the heap plus one; 0 when not armed
	owner interface{ expired(now mono.Time) }
}

// timers is a heap of the armed timers, the earliest first.
type timers []*timer

// Len, Less, Swap, Push and Pop are those of heap.Interface.
func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.index = len(*h)
}
func (h *timers) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = 0
	return t
}

// arm sets t, which may be armed already.
func (h *timers) arm(t *timer, at mono.Time) {
	t.at = at
	if t.index != 0 {
		heap.Fix(h, t.index-1)
		return
	}
	heap.Push(h, t)
}

func (h *timers) stop(t *timer) {
	if t.index != 0 {
		heap.Remove(h, t.index-1)
	}
}

// next is when the first timer is due.
func (h timers) next() mono.Time {
	if len(h) == 0 {
		return mono.Never
	}
	return h[0].at
}

// pop takes the first timer when it is due.
func (h *timers) pop(now mono.Time) *timer {
	if h.next() > now {
		return nil
	}
	return heap.Pop(h).(*timer)
}
