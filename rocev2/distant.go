package rocev2

import "roced.io/roced/rocev2/memory"

// runSize bounds gathered writes: a super-frame's payload.
const runSize = 1 << 16

// writeRun holds accepted data for consecutive bytes of a Distant memory that are not written yet. It lasts for a batch of
// frames. flushRun writes it before a completion (Sync), before any other access, and before the next frame leaves.
type writeRun struct {
	q   *QueuePair // nil: empty
	mem Distant
	off uint64
	buf []byte
}

// readAhead holds data of a message beyond the packet that they were read for. It lives as long as the frame with that
// packet is being filled, so that no packet of a later transmission uses it.
type readAhead struct {
	mem    Distant
	remote bool // on behalf of the peer: a READ response
	off    uint64
	buf    []byte
}

// view returns n bytes of r at off, to be sent. The next calls probably request the ahead bytes behind them.
func (h *host) view(r *memory.Region, off uint64, n int, ahead uint32, remote bool) ([]byte, bool) {
	switch {
	case r.Deferred != nil:
		return h.deferrals().view(r, off, n, int(ahead), remote)
	case r.Distant == nil:
		v, ok := r.Mem.View(off, n)
		return v, h.reached(ok)
	}
	b := &h.nic.tx
	a := &b.ahead
	if a.mem == r.Distant && a.remote == remote && a.off == off && len(a.buf) >= n {
		v := a.buf[:n:n]
		a.off, a.buf = off+uint64(n), a.buf[n:]
		return v, true
	}
	h.nic.flushRun()
	*a = readAhead{}
	v := b.alloc(n + min(int(ahead), b.roomAfter(n)))
	if !r.Distant.Read(off, v) {
		h.nic.ctr.MemoryFaults++
		return nil, false
	}
	*a = readAhead{r.Distant, remote, off + uint64(n), v[n:]}
	return v[:n:n], true
}

// reached counts an access to memory that has failed. It returns ok.
func (h *host) reached(ok bool) bool {
	if !ok {
		h.nic.ctr.MemoryFaults++
	}
	return ok
}

// roomAfter returns the room of the frame behind a packet with a payload of n bytes.
func (b *txState) roomAfter(n int) int {
	segs, body := b.segs, b.body
	if segs == 0 {
		body = 0
	}
	return max(0, min((b.maxSegs-segs-1)*n, b.maxBytes-body-n, len(b.scratch[0])-b.scratchOff-n))
}

// write places p at off of r, or keeps it until Sync. Writes become visible in order.
func (h *host) write(r *memory.Region, off uint64, p []byte) bool {
	q, w := (*QueuePair)(h), &h.nic.run
	if w.q != nil && !(w.q == q && w.mem == r.Distant && w.off+uint64(len(w.buf)) == off && len(w.buf)+len(p) <= runSize) {
		h.nic.flushRun()
	}
	switch {
	case r.Deferred != nil:
		return h.deferrals().write(r, off, p)
	case r.Distant == nil:
		return h.reached(r.Mem.Write(off, p))
	}
	if w.q == nil {
		w.q, w.mem, w.off, w.buf = q, r.Distant, off, w.buf[:0]
	}
	w.buf = append(w.buf, p...)
	return true
}

// flushRun writes the gathered data. On failure the queue pair reports an error at the end of the message.
func (n *NIC) flushRun() {
	w := &n.run
	if w.q == nil {
		return
	}
	if !w.mem.Write(w.off, w.buf) {
		n.ctr.MemoryFaults++
		w.q.lost = true
	}
	w.q, w.mem = nil, nil
}

// detachMemory prepares for the end of a region.
func (n *NIC) detachMemory() {
	n.flushRun()
	n.detachViews()
}

// Sync makes all writes visible.
func (h *host) Sync() bool {
	h.nic.flushRun()
	if h.defers != nil && !h.defers.sync() {
		return false
	}
	lost := h.lost
	h.lost = false
	return !lost
}
