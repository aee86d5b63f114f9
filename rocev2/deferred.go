package rocev2

import (
	"slices"

	"roced/mono"
)

// Deferred is Memory whose accesses take time and are carried out elsewhere, by another thread
// for instance, while the NIC goes on: that of a process that may be stopped, or with pages that
// somebody has to bring. The queue pair that needs it waits (qp.Host.Later), nobody else does.
// Of the methods of Memory none is called.
//
// The accesses of a queue pair to one memory must take effect in the order of Start. One
// reads at a time, one is an atomic operation, and maxRuns write, so that a queue pair has no
// more than maxRuns + 2 under way.
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

// maxRuns is how many writes of a queue pair may be under way.
const maxRuns = 8

// deferrals are what a queue pair has to do with Deferred memory. They come with its first
// access, and a queue pair that is reset leaves them behind.
type deferrals struct {
	q     *QueuePair
	later bool // the last call that failed may succeed later

	// reads are what has been read for the packet that is sent next, of which each element of
	// a list may need one, and for those behind it in its message; reading is the one under
	// way. They are of no use any more once another request has been taken, of the client or
	// the peer: whoever posted that may have changed the memory before.
	reads   []*MemoryAccess
	reading *MemoryAccess
	atomic  *MemoryAccess

	run    *MemoryAccess // writes to consecutive bytes, not started
	spare  *MemoryAccess
	active int // writes under way

	// A packet that has to come again, or what is done again by Resume, writes the same once
	// more: what has been accepted of it, in this order, is not written twice.
	placed, again []place
}

// place is where something was written.
type place struct {
	mem Deferred
	off uint64
	n   int
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
func (d *deferrals) taken() {
	if d != nil {
		d.reads = d.reads[:0]
	}
}

// write takes p, to be written at off of r.
func (d *deferrals) write(r *region, off uint64, p []byte) bool {
	at := place{r.deferred, off, len(p)}
	if len(d.again) > 0 && d.again[0] == at {
		d.again = d.again[1:]
		d.placed = append(d.placed, at)
		return true
	}
	d.again = nil
	if w := d.run; w != nil && (w.region != r || w.Mem != r.deferred || w.Off+uint64(len(w.Buf)) != off || len(w.Buf)+len(p) > runSize) {
		if d.active >= maxRuns {
			return d.wait()
		}
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
	d.placed = append(d.placed, at)
	return true
}

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
	d.flush()
	if d.active > 0 {
		return d.wait()
	}
	d.placed, d.again = d.placed[:0], nil
	return true
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

// begin is called before a packet is given to the queue pair the first time.
func (d *deferrals) begin() {
	if d != nil {
		d.placed, d.again = d.placed[:0], nil
	}
}

// repeat is called before what had to wait is done again.
func (d *deferrals) repeat() {
	if d != nil {
		d.placed, d.again = nil, d.placed
	}
}

// Accessed tells that a has ended. Its queue pair goes on.
func (n *NIC) Accessed(now mono.Time, a *MemoryAccess) {
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
	n.resume(now, d.q)
}
