package rocev2

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Deferred is Memory whose accesses take time and are carried out elsewhere, by another thread
// for instance, while the NIC goes on: that of a process that may be stopped, or with pages that
// somebody has to bring. The queue pair that needs it waits (qp.Host.Later), nobody else does.
// Of the methods of Memory none is called.
//
// The accesses of a queue pair to one memory must take effect in the order of Start. One
// reads at a time, and one is an atomic operation; while maxRuns write, the queue pair is given
// no packet.
//
// A region or queue pair may go away meanwhile: what is still under way then is not waited for,
// and its result is forgotten. Whoever tells a client that its memory is its own again sees to
// it that all that was started has ended before.
type Deferred interface {
	Memory
	// Start begins a. When it has ended, with a.OK set, NIC.Accessed is called, by the goroutine
	// of the NIC and not from within Start. a is not the NIC's until then.
	Start(a *MemoryAccess)
}

// AccessKind is what a MemoryAccess does.
type AccessKind uint8

// Kinds of accesses.
const (
	AccessRead        AccessKind = iota // fill Buf with what is at Off
	AccessWrite                         // place Buf at Off
	AccessCompareSwap                   // as Memory has them, with Operands
	AccessFetchAdd
)

// MemoryAccess is an access to Deferred memory.
type MemoryAccess struct {
	Kind     AccessKind
	Mem      Deferred
	Off      uint64
	Buf      []byte
	Operands [2]uint64 // compare and swap, or what is to be added
	Orig     uint64    // atomic operations: the value found
	OK       bool      // it has succeeded

	of     *deferrals
	region *region
	ended  bool
	remote bool // read on behalf of the peer
	used   int  // bytes of Buf that have been sent
}

// Run carries a out on m, whatever it waits for. It may be called by any goroutine.
func (a *MemoryAccess) Run(m Distant) {
	switch a.Kind {
	case AccessRead:
		a.OK = m.Read(a.Off, a.Buf)
	case AccessWrite:
		a.OK = m.Write(a.Off, a.Buf)
	case AccessCompareSwap:
		a.Orig, a.OK = m.CompareSwap(a.Off, a.Operands[0], a.Operands[1])
	case AccessFetchAdd:
		a.Orig, a.OK = m.FetchAdd(a.Off, a.Operands[0])
	}
}

// maxRuns is how many writes of a queue pair may be under way when it is given a packet, which
// makes some more: one for each element of a list.
const maxRuns = 8

// deferrals are what a queue pair has to do with Deferred memory. They come with its first
// access, and a queue pair that is reset leaves them behind.
type deferrals struct {
	q     *QueuePair
	later bool // the last call that failed may succeed later

	// reads are what has been read for the packet that is sent next, of which each element of
	// a list may need one, and for those behind it in its message; reading is the one under
	// way. They are of no use any more once another request has been taken, of the client or
	// the peer (remote): whoever posted that may have changed the memory before.
	reads   []*MemoryAccess
	reading *MemoryAccess
	atomic  *MemoryAccess

	run    *MemoryAccess // writes to consecutive bytes, not started
	spare  *MemoryAccess
	active int // writes under way

	// held are completions in error, and all behind them: they give memory back to the client,
	// so they wait for the writes under way.
	held []heldCompletion
}

// heldCompletion is a completion that has not been told.
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

// Later implements qp.Host. Whoever is told "later" by a call asks once.
func (h *host) Later() bool {
	if h.defers == nil || !h.defers.later {
		return false
	}
	h.defers.later = false
	return true
}

// wait answers a call with "later".
func (d *deferrals) wait() bool {
	d.later = true
	return false
}

// fault answers a call that has failed.
func (d *deferrals) fault() bool {
	d.q.nic.ctr.MemoryFaults++
	return false
}

// start begins an access that waits for nothing but those before it.
func (d *deferrals) start(a *MemoryAccess) {
	a.of, a.ended, a.OK = d, false, false
	a.Mem.Start(a)
}

// view is host.view of deferred memory.
func (d *deferrals) view(r *region, off uint64, n, ahead int, remote bool) ([]byte, bool) {
	for i, a := range d.reads {
		if a.region != r || a.Mem != r.deferred || a.remote != remote || off-a.Off > uint64(len(a.Buf)) || len(a.Buf)-int(off-a.Off) < n {
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
		v := d.q.nic.scratch(n)
		copy(v, a.Buf[a.used-n:])
		return v, true
	}
	if d.reading == nil {
		d.flush()
		a := &MemoryAccess{Kind: AccessRead, Mem: r.deferred, Off: off, Buf: make([]byte, n+min(ahead, max(0, runSize-n))), region: r, remote: remote}
		d.reading, d.reads = a, append(d.reads, a)
		d.start(a)
	}
	return nil, d.wait()
}

// sent tells that a packet has been made: what has been read for it is not needed again.
func (d *deferrals) sent() {
	if d != nil {
		d.reads = slices.DeleteFunc(d.reads, func(a *MemoryAccess) bool { return a.used == len(a.Buf) })
	}
}

// taken tells that a request has been taken, of the client or the peer.
func (d *deferrals) taken(remote bool) {
	if d != nil {
		d.reads = slices.DeleteFunc(d.reads, func(a *MemoryAccess) bool { return a.remote == remote })
	}
}

// write takes p, to be written at off of r.
func (d *deferrals) write(r *region, off uint64, p []byte) bool {
	if w := d.run; w != nil && (w.region != r || w.Mem != r.deferred || w.Off+uint64(len(w.Buf)) != off || len(w.Buf)+len(p) > runSize) {
		d.flush()
	}
	if d.run == nil {
		d.run, d.spare = d.spare, nil
		if d.run == nil {
			d.run = new(MemoryAccess)
		}
		*d.run = MemoryAccess{Kind: AccessWrite, Mem: r.deferred, Off: off, Buf: d.run.Buf[:0], region: r}
	}
	d.run.Buf = append(d.run.Buf, p...)
	return true
}

// full reports whether packets must wait for the writes under way.
func (d *deferrals) full() bool { return d != nil && d.active >= maxRuns }

// flush starts what has been gathered, unless its region has gone away.
func (d *deferrals) flush() {
	w := d.run
	if w == nil {
		return
	}
	d.run = nil
	if w.region.deferred != w.Mem {
		d.q.lost = true
		return
	}
	d.active++
	d.start(w)
}

// sync reports whether nothing is under way.
func (d *deferrals) sync() bool {
	return !d.writing() || d.wait()
}

// operate carries out an atomic operation, which must be the same one when it comes again.
func (d *deferrals) operate(r *region, x MemoryAccess) (orig uint64, ok bool) {
	a := d.atomic
	switch {
	case a == nil:
		d.flush()
		x.Mem, x.region = r.deferred, r
		d.atomic = &x
		d.start(&x)
		return 0, d.wait()
	case !a.ended:
		return 0, d.wait()
	}
	if d.atomic = nil; !a.OK {
		return 0, d.fault()
	}
	return a.Orig, true
}

// hold keeps a completion, if it must be.
func (d *deferrals) hold(c *qp.CQE, recv bool) bool {
	if d == nil || len(d.held) == 0 && (c.Status == qp.StatusSuccess || !d.writing()) {
		return false
	}
	d.held = append(d.held, heldCompletion{*c, recv})
	return true
}

// holding reports whether completions are held: no more is taken then, so that they are no more
// than the requests that were posted at a time.
func (d *deferrals) holding() bool { return d != nil && len(d.held) > 0 }

// writing reports whether something is under way that changes the client's memory, which begins
// now at the latest.
func (d *deferrals) writing() bool {
	d.flush()
	return d.active > 0
}

// tell tells what has been held, and goes on with what is posted.
func (d *deferrals) tell(now mono.Time) {
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

// Accessed tells that a has ended. Its queue pair goes on.
func (n *NIC) Accessed(now mono.Time, a *MemoryAccess) {
	n.now = now
	d := a.of
	a.ended = true
	if d.q.defers != d {
		return // it has been reset
	}
	switch a.Kind {
	case AccessRead:
		d.reading = nil
	case AccessWrite:
		d.active--
		if d.spare = a; !a.OK {
			d.q.lost = true
			n.ctr.MemoryFaults++
		}
	}
	if d.active == 0 && d.holding() {
		d.tell(now)
	}
	n.resume(now, d.q)
}
