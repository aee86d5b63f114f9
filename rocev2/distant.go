package rocev2

import (
	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/rocev2/memory"
)

// runSize bounds gathered writes: a super-frame's payload.
const runSize = 1 << 16

// writeRun holds accepted data for consecutive bytes of a memory that are not written yet. It lasts for a batch of frames.
// flushRun writes it before a completion (Sync), before any other access, and before the next frame leaves.
type writeRun struct {
	q      *QueuePair // nil: empty
	region *memory.Region
	mem    memory.Memory
	off    uint64
	buf    []byte
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
	b := &h.nic.tx
	burst := b.burst && !b.gathering && !h.wary
	if burst {
		ahead = uint32(min(uint64(ahead), r.Extent(off)-uint64(n)))
	}
	switch {
	case r.Deferred != nil:
		return h.deferrals().view(r, off, n, int(ahead), remote)
	case r.Distant == nil:
		v, ok := r.Mem.View(off, n)
		if ok && burst {
			h.extend(r, off, v, ahead)
		}
		return v, h.reached(ok)
	case burst:
		if v, done, ok := h.postpone(r.Distant, off, n, ahead); done {
			return v, h.reached(ok)
		}
	}
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
	h.wary = false
	*a = readAhead{r.Distant, remote, off + uint64(n), v[n:]}
	return v[:n:n], true
}

// postponeMin is the shortest rest of a message that the receiver on a switch reads.
const postponeMin = 8 << 10

// postpone returns n bytes that the receiver on the switch reads from mem, straight into its own memory if it can. Of each
// burst, the sender reads one byte, to find memory that has gone. done is false if the sender has to read the data.
func (h *host) postpone(mem Distant, off uint64, n int, ahead uint32) (v []byte, done, ok bool) {
	b := &h.nic.tx
	u := &b.source
	if u.mem != mem || u.off+uint64(len(u.buf)) != off {
		if n+int(ahead) < postponeMin {
			return nil, false, false
		}
		h.nic.flushRun()
		if !mem.Read(off, b.scrap[:1]) {
			return nil, true, false
		}
	}
	*u = origin{of: h.nic, buf: b.alloc(n), mem: mem, off: off, ahead: min(int(ahead), b.roomAfter(n))}
	return u.buf, true, true
}

// extend makes v, the view of a packet at off of r, the source of the packet. With it come the packets behind it.
func (h *host) extend(r *memory.Region, off uint64, v []byte, ahead uint32) {
	b := &h.nic.tx
	s := &b.source
	if _, follows := mapped.Join(s.buf, v); follows && s.mem == nil && len(v) <= s.ahead {
		s.buf, s.ahead = s.buf[len(s.buf):][:len(v)], s.ahead-len(v)
		return
	}
	more := min(int(ahead), max(0, maxBurst-b.forwarded-len(v)))
	w, ok := r.Mem.View(off, len(v)+more)
	if !ok {
		w, more = v, 0
	}
	*s = origin{of: h.nic, buf: w[:len(v)], ahead: more}
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
	if b.burst {
		return max(0, min(maxBurst-b.forwarded-n, len(b.scratch[0])-b.scratchOff-n))
	}
	segs, body := b.segs, b.body
	if segs == 0 {
		body = 0
	}
	return max(0, min((b.maxSegs-segs-1)*n, b.maxBytes-body-n, len(b.scratch[0])-b.scratchOff-n))
}

// write places p at off of r, or keeps it until Sync. Writes become visible in order. The ahead bytes behind p get their
// data later, or with p.
func (h *host) write(r *memory.Region, off uint64, p []byte, ahead uint32) bool {
	q, n := (*QueuePair)(h), h.nic
	w := &n.run
	if w.q != nil && !(w.q == q && w.region == r && w.off+uint64(len(w.buf)) == off && len(w.buf)+len(p) <= runSize) {
		n.flushRun()
	}
	if r.Deferred != nil {
		return h.deferrals().write(r, off, p)
	}
	if n.rx.origin.of != nil {
		if from := n.rx.origin.part(p); from.of != nil {
			n.flushRun()
			return h.pull(r, off, p, &from, ahead)
		}
	}
	n.pulled = pulled{}
	if r.Distant == nil {
		n.flushRun()
		return h.reached(r.Mem.Write(off, p))
	}
	if w.q == nil {
		*w = writeRun{q: q, region: r, mem: r.Mem, off: off, buf: w.buf[:0]}
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
	*w = writeRun{buf: w.buf}
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
