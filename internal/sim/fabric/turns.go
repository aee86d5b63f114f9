package fabric

// turns is a queue in which the ports where packets came in take turns, a packet each: the virtual
// output queues of a switch that queues at its inputs, served round robin.
type turns struct {
	of   []queue  // by port where packets came in
	next []uint16 // of those that have something: whose turn is next
	last uint16   // whose turn is last; its next is first
	n    int      // packets
}

func newTurns(ports int) *turns {
	return &turns{of: make([]queue, ports), next: make([]uint16, ports)}
}

func (t *turns) push(p *Packet) {
	q := &t.of[p.in]
	if q.head == nil {
		t.append(p.in)
	}
	q.push(p)
	t.n++
}

// append makes a port the last one.
func (t *turns) append(in uint16) {
	if t.n > 0 {
		t.next[in], t.next[t.last] = t.next[t.last], in
	} else {
		t.next[in] = in
	}
	t.last = in
}

// pop removes the first packet of the port whose turn it is; there is one.
func (t *turns) pop() *Packet {
	first := t.next[t.last]
	q := &t.of[first]
	p := q.pop()
	if t.n--; q.head != nil {
		t.last = first
	} else {
		t.next[t.last] = t.next[first] // itself, if nobody else has anything
	}
	return p
}

func (t *turns) len() int { return t.n }
