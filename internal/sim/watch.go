package sim

import (
	"encoding/json"
	"io"
	"time"

	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// epoch is the date of instant zero, the same in each run.
var epoch = time.Unix(0, 0).UTC()

// tracer writes the events of a queue pair in the daemon's trace format, which `rocectl trace draw` reads.
type tracer struct {
	rec    *trace.Recorder
	out    *json.Encoder
	events int
	err    error
}

// drainEvery is the number of events between two writes, less than the capacity of a Recorder.
const drainEvery = 1 << 14

// TraceTo writes the events of q to w as lines of JSON until finish is called.
func (s *Simulation) TraceTo(w io.Writer, q *nic.QP) (finish func() error) {
	t := &tracer{rec: trace.NewRecorder(), out: json.NewEncoder(w)}
	t.rec.Begin(0, trace.Start{Time: epoch, NIC: s.cfg.Graph.Name(q.Node()), QPN: uint32(q.Num()), Dest: uint32(q.Peer()),
		Profile: s.cfg.Profile, MTU: s.cfg.QP.MTU, SQPSN: s.cfg.QP.FirstPSN, RQPSN: s.cfg.QP.FirstPSN})
	q.Trace(t)
	return func() error {
		if t.err != nil {
			return t.err
		}
		return t.rec.Finish(t.out)
	}
}

// Trace implements qp.Tracer.
func (t *tracer) Trace(now mono.Time, e qp.TraceEvent) {
	t.rec.Trace(now, e)
	if t.events++; t.events%drainEvery == 0 && t.err == nil {
		t.err = t.rec.Drain(t.out)
	}
}

// Closed implements qp.Tracer.
func (t *tracer) Closed() { t.rec.Closed() }
