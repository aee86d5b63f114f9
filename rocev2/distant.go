package rocev2

// Distant is Memory that this process cannot look at but only copy, at a price for
// each access: that of another process, for instance. The NIC reads it in large
// pieces and gathers what is written; View is not called.
type Distant interface {
	Memory
	// Read fills p with what is at off.
	Read(off uint64, p []byte) bool
}

// runSize bounds what is gathered: a super-frame's payload.
const runSize = 1 << 16

// writeRun is what has been accepted for consecutive bytes of a Distant memory and
// not been written yet. It lasts for a batch of frames: it is written before anybody
// is told (Sync), before anything else is written or read, and before the next
// frame leaves (flushRun).
type writeRun struct {
	q   *QueuePair // that it is for, nil if there is none
	mem Distant
	off uint64
	buf []byte
}

// readAhead is what has been read of a message beyond the packet that it was read
// for. It lives as long as the frame is being filled which that packet is in, so
// no packet of a later transmission can be made of it.
type readAhead struct {
	mem    Distant
	remote bool // on behalf of the peer: a READ response
	off    uint64
	buf    []byte
}

// view returns n bytes of r at off, to be sent; ahead bytes more are expected to
// be asked for next.
func (h *host) view(r *region, off uint64, n int, ahead uint32, remote bool) ([]byte, bool) {
	switch {
	case r.deferred != nil:
		return h.deferrals().view(r, off, n, int(ahead), remote)
	case r.distant == nil:
		return r.mem.View(off, n)
	}
	b := &h.nic.net.tx
	a := &b.ahead
	if a.mem == r.distant && a.remote == remote && a.off == off && len(a.buf) >= n {
		v := a.buf[:n:n]
		a.off, a.buf = off+uint64(n), a.buf[n:]
		return v, true
	}
	h.nic.flushRun()
	*a = readAhead{}
	want := n + min(int(ahead), b.roomAfter(n))
	v := h.nic.scratch(want)
	if !r.distant.Read(off, v) {
		h.nic.ctr.MemoryFaults++
		return nil, false
	}
	*a = readAhead{r.distant, remote, off + uint64(n), v[n:]}
	return v[:n:n], true
}

// roomAfter is how many bytes the frame will take at most behind a packet with a
// payload of n bytes.
func (b *txState) roomAfter(n int) int {
	segs, body := b.segs, b.body
	if segs == 0 {
		body = 0
	}
	return max(0, min((b.maxSegs-segs-1)*n, b.maxBytes-body-n, len(b.scratch[0])-b.scratchOff-n))
}

// write places p at off of r, or keeps it until Sync. Writes become visible in the
// order in which they come.
func (h *host) write(r *region, off uint64, p []byte) bool {
	q, w := (*QueuePair)(h), &h.nic.obj.run
	if w.q != nil && !(w.q == q && w.mem == r.distant && w.off+uint64(len(w.buf)) == off && len(w.buf)+len(p) <= runSize) {
		h.nic.flushRun()
	}
	switch {
	case r.deferred != nil:
		return h.deferrals().write(r, off, p)
	case r.distant == nil:
		return r.mem.Write(off, p)
	}
	if w.q == nil {
		w.q, w.mem, w.off, w.buf = q, r.distant, off, w.buf[:0]
	}
	w.buf = append(w.buf, p...)
	return true
}

// flushRun writes what has been gathered. If that fails, its queue pair learns it
// at the end of the message.
func (n *NIC) flushRun() {
	w := &n.obj.run
	if w.q == nil {
		return
	}
	if !w.mem.Write(w.off, w.buf) {
		n.ctr.MemoryFaults++
		w.q.lost = true
	}
	w.q, w.mem = nil, nil
}

// Sync makes visible what has been written.
func (h *host) Sync() bool {
	h.nic.flushRun()
	if h.defers != nil && !h.defers.sync() {
		return false
	}
	lost := h.lost
	h.lost = false
	return !lost
}
