package trace

import (
	"encoding/json"
	"sync/atomic"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// ringEvents is the maximum number of unwritten events, a power of two. At a million events per second the ring
// holds 65 ms.
const ringEvents = 1 << 16

// Recorder is a qp.Tracer that queues events until they are written. The NIC's thread queues events and never
// waits; another thread writes them. Events that do not fit are counted as lost.
type Recorder struct {
	ring       []entry
	head, tail atomic.Uint64 // head: next slot to fill; tail: next event to write
	lost       atomic.Uint64
	start      atomic.Pointer[Start]
	at         mono.Time // of start; set before it
	closed     chan struct{}
	gone       atomic.Bool
	skipped    entry // lost events since the last queued one; owned by the NIC's thread

	flor    bool // decode Flor's headers
	begun   bool // start has been written
	written uint64
}

type entry struct {
	now  mono.Time
	e    qp.TraceEvent
	own  [bth.MaxOwn]byte // of e.Own
	flor *flor.Info
	lost uint64 // not zero: it replaces so many events; now is that of the last one
}

// record returns the line of e for a trace that began at start.
func (e *entry) record(start mono.Time) Record {
	if e.lost > 0 {
		return Record{T: int64(e.now - start), Event: "skipped", Lost: e.lost}
	}
	line := newRecord(e.now-start, &e.e)
	line.Flor = e.flor
	return line
}

var _ qp.Tracer = (*Recorder)(nil)

// NewRecorder returns a recorder of default size.
func NewRecorder() *Recorder { return newRecorder(ringEvents) }

// NewThinRecorder returns a recorder that keeps at most about n events between two calls of Drain. Further events
// are lost.
func NewThinRecorder(n int) *Recorder {
	size := 1
	for size < min(n, ringEvents) {
		size *= 2
	}
	return newRecorder(size)
}

// ReadFlor enables decoding of Flor's headers, which allocates memory for each packet. Call it before the first
// event.
func (r *Recorder) ReadFlor() { r.flor = true }

func newRecorder(n int) *Recorder {
	return &Recorder{ring: make([]entry, n), closed: make(chan struct{})}
}

// Begin sets the queue pair's description. Call it before the first event.
func (r *Recorder) Begin(now mono.Time, s Start) {
	r.at = now
	r.start.Store(&s)
}

// Trace implements qp.Tracer.
func (r *Recorder) Trace(now mono.Time, e qp.TraceEvent) {
	head, needed := r.head.Load(), uint64(1)
	if r.skipped.lost > 0 {
		needed = 2
	}
	if head-r.tail.Load()+needed > uint64(len(r.ring)) {
		r.lost.Add(1)
		r.skipped.now = now
		r.skipped.lost++
		return
	}
	if r.skipped.lost > 0 {
		r.ring[head&uint64(len(r.ring)-1)] = r.skipped
		head++
		r.skipped.lost = 0
	}
	to := &r.ring[head&uint64(len(r.ring)-1)]
	*to = entry{now: now, e: e}
	if p := e.Packet; r.flor && p != nil {
		to.flor = flor.Of(p.Opcode, p.Imm, p.Payload, true)
	}
	to.e.Packet = nil
	to.e.Own = append(to.own[:0], e.Own...)
	r.head.Store(head + 1)
}

// Closed implements qp.Tracer.
func (r *Recorder) Closed() {
	if !r.gone.Swap(true) {
		close(r.closed)
	}
}

// Begun reports whether Begin was called.
func (r *Recorder) Begun() bool { return r.start.Load() != nil }

// Done returns a channel that is closed when the queue pair is closed.
func (r *Recorder) Done() <-chan struct{} { return r.closed }

// Drain writes the queued events.
func (r *Recorder) Drain(w *json.Encoder) error {
	s := r.start.Load()
	if s == nil {
		return nil
	}
	if !r.begun {
		r.begun = true
		if err := w.Encode(Record{Event: "start", Start: s}); err != nil {
			return err
		}
	}
	for tail, head := r.tail.Load(), r.head.Load(); tail != head; tail++ {
		e := &r.ring[tail&uint64(len(r.ring)-1)]
		line := e.record(r.at)
		r.tail.Store(tail + 1) // the slot may now be overwritten
		if err := w.Encode(line); err != nil {
			return err
		}
		if line.Event != "skipped" {
			r.written++
		}
	}
	return nil
}

// Finish writes the queued events and the last line. No event may follow.
func (r *Recorder) Finish(w *json.Encoder) error {
	if err := r.Drain(w); err != nil {
		return err
	}
	return w.Encode(Record{Event: "end", Events: r.written, Lost: r.lost.Load()})
}

// Counts returns the numbers of written and of lost events.
func (r *Recorder) Counts() (written, lost uint64) { return r.written, r.lost.Load() }
