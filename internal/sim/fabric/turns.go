package fabric

// turns is a queue that serves its ingress ports round robin, one packet each: the virtual output queues of a
// switch with input queues.
type turns struct {
	of   []queue  // by ingress port
	next []uint16 // a ring of the ports that have packets
	last uint16   // the last port of the ring; its next is the first
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

// pop removes the first packet of the first port; the queue must not be empty.
func (t *turns) pop() *Packet {
	first := t.next[t.last]
	q := &t.of[first]
	p := q.pop()
	if t.n--; q.head != nil {
		t.last = first
	} else {
		t.next[t.last] = t.next[first] // itself, if no other port has packets
	}
	return p
}

func (t *turns) len() int { return t.n }

func (t *turns) each(do func(*Packet)) {
	for i := range t.of {
		t.of[i].each(do)
	}
}
