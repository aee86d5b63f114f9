package trace

import (
	"encoding/json"
	"sync/atomic"

	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// ringEvents is how many events wait to be written at most; a power of two. At a million
// events a second, it holds for 65 ms.
const ringEvents = 1 << 16

// Recorder is a qp.Tracer that keeps events until they are written. The NIC's thread puts
// them in and never waits, another one writes: what finds no room is counted.
type Recorder struct {
	ring       []entry
	head, tail atomic.Uint64 // head: next to be put in; tail: next to be written
	lost       atomic.Uint64
	start      atomic.Pointer[Start]
	at         mono.Time // of start; set before it
	closed     chan struct{}
	gone       atomic.Bool
	skipped    entry // since the last event that found room; of the NIC's thread

	flor    bool // packets are read as Flor's
	begun   bool // start has been written
	written uint64
}

type entry struct {
	now  mono.Time
	e    qp.TraceEvent
	flor *flor.Info
	lost uint64 // if it stands for so many events, the last of which was now
}

// record is the line of e, of a trace that began at start.
func (e *entry) record(start mono.Time) Record {
	if e.lost > 0 {
		return Record{T: int64(e.now - start), Event: "skipped", Lost: e.lost}
	}
	line := newRecord(e.now-start, &e.e)
	line.Flor = e.flor
	return line
}

var _ qp.Tracer = (*Recorder)(nil)

// NewRecorder returns a recorder of the default size.
func NewRecorder() *Recorder { return newRecorder(ringEvents) }

// NewThinRecorder returns a recorder of which no more than about n events come each time that it is
// drained. The others count as lost.
func NewThinRecorder(n int) *Recorder {
	size := 1
	for size < min(n, ringEvents) {
		size *= 2
	}
	return newRecorder(size)
}

// ReadFlor makes it read what packets say to Flor, which takes memory for each. It comes before the first
// event.
func (r *Recorder) ReadFlor() { r.flor = true }

func newRecorder(n int) *Recorder {
	return &Recorder{ring: make([]entry, n), closed: make(chan struct{})}
}

// Begin tells which queue pair it is. It comes before the first event.
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
	r.head.Store(head + 1)
}

// Closed implements qp.Tracer.
func (r *Recorder) Closed() {
	if !r.gone.Swap(true) {
		close(r.closed)
	}
}

// Begun reports whether the queue pair is known.
func (r *Recorder) Begun() bool { return r.start.Load() != nil }

// Done returns a channel that is closed when the queue pair is gone.
func (r *Recorder) Done() <-chan struct{} { return r.closed }

// Drain writes the events that there are.
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
		r.tail.Store(tail + 1) // from here on e is another one's
		if err := w.Encode(line); err != nil {
			return err
		}
		if line.Event != "skipped" {
			r.written++
		}
	}
	return nil
}

// Finish writes the events that there are and the last line. Nobody may put in more.
func (r *Recorder) Finish(w *json.Encoder) error {
	if err := r.Drain(w); err != nil {
		return err
	}
	return w.Encode(Record{Event: "end", Events: r.written, Lost: r.lost.Load()})
}

// Counts returns how many events were written, and how many were lost.
func (r *Recorder) Counts() (written, lost uint64) { return r.written, r.lost.Load() }
