package rocev2

// controlSlots is the number of ARP, ND, ICMP and management frames that may wait.
const controlSlots = 64

// controlRing holds frames of our own that are not of a queue pair. Its buffers grow to what
// they have held and are used again.
type controlRing struct {
	slots [controlSlots][]byte
	head  int
	len   int
	bufs  [1][]byte
	frame Frame
}

// alloc appends a frame of size bytes and returns it to be filled, nil when the
// ring is full.
func (r *controlRing) alloc(size int) []byte {
	if r.len == controlSlots {
		return nil
	}
	s := &r.slots[(r.head+r.len)%controlSlots]
	if cap(*s) < size {
		*s = make([]byte, max(size, 128))
	}
	*s = (*s)[:size]
	r.len++
	return *s
}

// pop removes the oldest frame.
func (r *controlRing) pop() {
	r.head = (r.head + 1) % controlSlots
	r.len--
}

// nextControl returns the oldest control frame; it is removed when it has left.
func (n *NIC) nextControl() *Frame {
	r := &n.net.ctl
	if r.len == 0 {
		return nil
	}
	n.net.tx.control, n.net.tx.segs = true, 1
	b := r.slots[r.head]
	_, body, _, _ := udpBody(b)
	return r.single(b, body)
}

// single makes a frame of one piece.
func (r *controlRing) single(b []byte, hdrLen int) *Frame {
	r.bufs[0] = b
	r.frame = Frame{Bufs: r.bufs[:], Len: len(b), HdrLen: hdrLen}
	return &r.frame
}

// nextHeld returns the oldest frame whose neighbour has answered meanwhile.
func (n *NIC) nextHeld() *Frame {
	t := &n.net.neigh
	if len(t.ready) == 0 {
		return nil
	}
	b := t.ready[0]
	t.ready[0] = nil
	t.ready = t.ready[1:]
	t.held--
	n.net.tx.segs = 1
	_, body, _, _ := udpBody(b)
	return n.net.ctl.single(b, body)
}
