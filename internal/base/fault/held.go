package fault

import "roced.io/roced/plugin/mono"

// maxHeld bounds the frames held back in one direction.
const maxHeld = 4096

// held is a frame that waits.
type held struct {
	frame  []byte
	due    mono.Time
	seq    uint64 // order of arrival
	copies int
	// left is how many frames of flow have still to overtake; 0 when the frame
	// waits for its time only.
	left int
	flow flowKey
}

// heldQueue is a heap of frames ordered by (due, seq). Frames that have left it
// lie behind its end, so that their buffers are used again.
type heldQueue struct {
	slots []*held // heap in [0:n], spare ones behind
	n     int
	// overtakers is how many frames in the heap wait to be overtaken.
	overtakers int
}

// add copies frame; false means that the queue is full.
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
		q.overtakers++
	}
	q.n++
	q.up(q.n - 1)
	return true
}

// next is when the first frame is due.
func (q *heldQueue) next() mono.Time {
	if q.n == 0 {
		return mono.Never
	}
	return q.slots[0].due
}

// pop takes a copy of the first frame, which must be there. It is valid until
// the next call of add.
func (q *heldQueue) pop() *held {
	s := q.slots[0]
	if s.copies--; s.copies > 0 {
		return s
	}
	if s.left > 0 {
		q.overtakers--
	}
	q.n--
	q.swap(0, q.n)
	q.down(0)
	return s
}

// overtaken notes that frame seq of flow has passed: earlier frames of that flow
// which have waited for enough later ones are due now.
func (q *heldQueue) overtaken(now mono.Time, flow *flowKey, seq uint64) {
	for i := 0; q.overtakers > 0 && i < q.n; i++ {
		s := q.slots[i]
		if s.left == 0 || s.seq >= seq || s.flow != *flow {
			continue
		}
		if s.left--; s.left == 0 {
			q.overtakers--
			s.due = min(s.due, now)
			q.up(i) // what moves down to i has been looked at
		}
	}
}

// release makes all frames due, in the order in which they came.
func (q *heldQueue) release() {
	for _, s := range q.slots[:q.n] {
		s.due, s.left = 0, 0
	}
	q.overtakers = 0
	for i := q.n/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q *heldQueue) less(i, j int) bool {
	a, b := q.slots[i], q.slots[j]
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

func (q *heldQueue) swap(i, j int) { q.slots[i], q.slots[j] = q.slots[j], q.slots[i] }

func (q *heldQueue) up(i int) {
	for i > 0 && q.less(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *heldQueue) down(i int) {
	for {
		c := 2*i + 1
		if c >= q.n {
			return
		}
		if c+1 < q.n && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			return
		}
		q.swap(i, c)
		i = c
	}
}
