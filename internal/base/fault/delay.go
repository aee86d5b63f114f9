package fault

import (
	"container/heap"

	"roced.io/roced/plugin/mono"
)

// maxHeld is the maximum number of delayed frames per direction.
const maxHeld = 4096

// held is a delayed frame.
type held struct {
	frame  []byte
	due    mono.Time
	seq    uint64 // order of arrival
	copies int
	// left is the number of frames of flow that must still pass; 0 means that the frame waits only for its time.
	left int
	flow flowKey
}

// heldQueue is a heap of frames ordered by (due, seq). Released frames stay behind its end, so that it reuses their
// buffers.
type heldQueue struct {
	slots []*held // heap in [0:n], spare frames behind
	n     int
	// reordered is the number of frames in the heap that wait for later frames.
	reordered int
}

// add copies frame into the queue. It returns false if the queue is full.
func (q *heldQueue) add(h held, frame []byte) bool {
	if q.n >= maxHeld {
		return false
	}
	if q.n == len(q.slots) {
		q.slots = append(q.slots, &held{})
	}
	s := q.slots[q.n]
	h.frame = append(s.frame[:0], frame...)
	*s = h
	if h.left > 0 {
		q.reordered++
	}
	heap.Push(q, nil)
	return true
}

// next returns the time at which the first frame is due.
func (q *heldQueue) next() mono.Time {
	if q.n == 0 {
		return mono.Never
	}
	return q.slots[0].due
}

// pop takes one copy of the first frame of a non-empty queue. The frame is valid until the next call of add.
func (q *heldQueue) pop() *held {
	s := q.slots[0]
	if s.copies--; s.copies > 0 {
		return s
	}
	if s.left > 0 {
		q.reordered--
	}
	heap.Pop(q)
	return s
}

// overtaken records that frame seq of flow has passed. Earlier frames of the flow that enough later frames have passed
// are due now.
func (q *heldQueue) overtaken(now mono.Time, flow *flowKey, seq uint64) {
	for i := 0; q.reordered > 0 && i < q.n; i++ {
		s := q.slots[i]
		if s.left == 0 || s.seq >= seq || s.flow != *flow {
			continue
		}
		if s.left--; s.left == 0 {
			q.reordered--
			s.due = min(s.due, now)
			heap.Fix(q, i) // the frame that moves to i has been checked already
		}
	}
}

// release makes all frames due, in the order of their arrival.
func (q *heldQueue) release() {
	for _, s := range q.slots[:q.n] {
		s.due, s.left = 0, 0
	}
	q.reordered = 0
	heap.Init(q)
}

// Len implements heap.Interface.
func (q *heldQueue) Len() int { return q.n }

// Less implements heap.Interface.
func (q *heldQueue) Less(i, j int) bool {
	a, b := q.slots[i], q.slots[j]
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

// Swap implements heap.Interface.
func (q *heldQueue) Swap(i, j int) { q.slots[i], q.slots[j] = q.slots[j], q.slots[i] }

// Push implements heap.Interface. The slot has been filled already.
func (q *heldQueue) Push(any) { q.n++ }

// Pop implements heap.Interface. The slot becomes a spare one.
func (q *heldQueue) Pop() any {
	q.n--
	return nil
}
