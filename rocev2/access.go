package rocev2

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
)

// maxRuns bounds the writes in progress of a queue pair that receives a packet. The packet adds some more: one for each
// element of a list.
const maxRuns = 8

// access is a memory.Access with the NIC's data. It is its Owner.
type access struct {
	memory.Access
	of     *deferrals
	region *memory.Region
	ended  bool
	remote bool // read on behalf of the peer
	used   int  // bytes of Buf that have been sent
}

// deferrals is the state of a queue pair that uses Deferred memory. Its first access creates it, a reset drops it.
type deferrals struct {
	q     *QueuePair
	later bool // the last failed call may succeed later

	// reads hold data for the next packet, of which each element of a list may need one, and for later packets of its
	// message. reading is the one in progress. They become useless when the queue pair takes another request, of the
	// client or the peer (remote): its poster may have changed the memory before.
	reads   []*access
	reading *access
	atomic  *access

	run    *access // writes to consecutive bytes, not started
	spare  *access
	active int // writes in progress

	// held are completions in error, and all behind them. They return memory to the client, so they wait for the writes
	// in progress.
	held []heldCompletion
}

// heldCompletion is a completion that waits for writes.
type heldCompletion struct {
	qp.CQE
	recv bool
}

func (h *host) deferrals() *deferrals {
	if h.defers == nil {
		h.defers = &deferrals{q: (*QueuePair)(h)}
	}
	return h.defers
}

// Later implements qp.Host. Call it once, right after a failed call.
func (h *host) Later() bool {
	if h.defers == nil || !h.defers.later {
		return h.nic.rx.gone
	}
	h.defers.later = false
	return true
}

// wait makes the current call fail with "later".
func (d *deferrals) wait() bool {
	d.later = true
	return false
}

// fault makes the current call fail for good.
func (d *deferrals) fault() bool {
	d.q.nic.ctr.MemoryFaults++
	return false
}

// start begins an access that follows those before it.
func (d *deferrals) start(a *access) {
	a.of, a.ended, a.OK, a.Owner = d, false, false, a
	a.Mem.Start(&a.Access)
}

// view is host.view of Deferred memory.
func (d *deferrals) view(r *memory.Region, off uint64, n, ahead int, remote bool) ([]byte, bool) {
	for i, a := range d.reads {
		if a.region != r || a.Mem != r.Deferred || a.remote != remote || off-a.Off > uint64(len(a.Buf)) || len(a.Buf)-int(off-a.Off) < n {
			continue
		}
		if a == d.reading {
			return nil, d.wait()
		}
		if !a.OK {
			d.reads = slices.Delete(d.reads, i, i+1)
			return nil, d.fault()
		}
		a.used = int(off-a.Off) + n
		v := d.q.nic.tx.alloc(n)
		copy(v, a.Buf[a.used-n:])
		return v, true
	}
	if d.reading == nil {
		d.flush()
		buf := make([]byte, n+min(ahead, max(0, runSize-n)))
		a := &access{Access: memory.Access{Kind: memory.AccessRead, Mem: r.Deferred, Off: off, Buf: buf}, region: r, remote: remote}
		d.reading, d.reads = a, append(d.reads, a)
		d.start(a)
	}
	return nil, d.wait()
}

// sent follows a packet: reads whose data have been used up are not needed again.
func (d *deferrals) sent() {
	if d != nil {
		d.reads = slices.DeleteFunc(d.reads, func(a *access) bool { return a.used == len(a.Buf) })
	}
}

// taken follows the start of a request, of the client or the peer.
func (d *deferrals) taken(remote bool) {
	if d != nil {
		d.reads = slices.DeleteFunc(d.reads, func(a *access) bool { return a.remote == remote })
	}
}

// write gathers p, to be written at off of r. It returns false if the data of p have gone.
func (d *deferrals) write(r *memory.Region, off uint64, p []byte) bool {
	if w := d.run; w != nil && (w.region != r || w.Mem != r.Deferred || w.Off+uint64(len(w.Buf)) != off || len(w.Buf)+len(p) > runSize) {
		d.flush()
	}
	if d.run == nil {
		d.run, d.spare = d.spare, nil
		if d.run == nil {
			d.run = new(access)
		}
		*d.run = access{Access: memory.Access{Kind: memory.AccessWrite, Mem: r.Deferred, Off: off, Buf: d.run.Buf[:0]}, region: r}
	}
	buf, ok := d.q.nic.append(d.run.Buf, p)
	d.run.Buf = buf
	return ok
}

// full reports whether packets must wait for the writes in progress.
func (d *deferrals) full() bool { return d != nil && d.active >= maxRuns }

// flush starts the gathered write, unless its region has gone.
func (d *deferrals) flush() {
	w := d.run
	if w == nil {
		return
	}
	d.run = nil
	if w.region.Deferred != w.Mem {
		d.q.lost = true
		return
	}
	d.active++
	d.start(w)
}

// sync reports whether no write is in progress.
func (d *deferrals) sync() bool {
	return !d.writing() || d.wait()
}

// operate carries out an atomic operation. A retry must be the same operation.
func (d *deferrals) operate(r *memory.Region, x memory.Access) (orig uint64, ok bool) {
	a := d.atomic
	switch {
	case a == nil:
		d.flush()
		x.Mem = r.Deferred
		d.atomic = &access{Access: x, region: r}
		d.start(d.atomic)
		return 0, d.wait()
	case !a.ended:
		return 0, d.wait()
	}
	if d.atomic = nil; !a.OK {
		return 0, d.fault()
	}
	return a.Orig, true
}

// hold keeps a completion if it must wait.
func (d *deferrals) hold(c *qp.CQE, recv bool) bool {
	if d == nil || len(d.held) == 0 && (c.Status == qp.StatusSuccess || !d.writing()) {
		return false
	}
	d.held = append(d.held, heldCompletion{*c, recv})
	return true
}

// holding reports whether completions are held. The queue pair takes no requests then, which bounds the completions to
// the requests posted at a time.
func (d *deferrals) holding() bool { return d != nil && len(d.held) > 0 }

// writing starts the gathered write and reports whether the client's memory may still change.
func (d *deferrals) writing() bool {
	d.flush()
	return d.active > 0
}

// release delivers the held completions and continues with the posted requests.
func (d *deferrals) release(now mono.Time) {
	held, q := d.held, d.q
	d.held = nil
	for i := range held {
		if h := (*host)(q); held[i].recv {
			h.CompleteRecv(held[i].CQE)
		} else {
			h.CompleteSend(held[i].CQE)
		}
	}
	q.machine().Doorbell(now)
	q.core.RecvPosted(now)
}

// Accessed reports that an access has ended. Its queue pair continues.
func (n *NIC) Accessed(now mono.Time, m *MemoryAccess) {
	n.now = now
	a := m.Owner.(*access)
	d := a.of
	a.ended = true
	if d.q.defers != d {
		return // the queue pair has been reset
	}
	switch a.Kind {
	case memory.AccessRead:
		d.reading = nil
	case memory.AccessWrite:
		d.active--
		if d.spare = a; !a.OK {
			d.q.lost = true
			n.ctr.MemoryFaults++
		}
	}
	if d.active == 0 && d.holding() {
		d.release(now)
	}
	n.resume(now, d.q)
}
