package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// traceInterval is the time between two transfers of recorded events to the client.
const traceInterval = 5 * time.Millisecond

// thinInterval is the same for a trace that leaves events out.
const thinInterval = 100 * time.Millisecond

// recorderFor returns the recorder of a trace and its transfer interval. A trace for live display may leave events
// out: ?most= is the approximate maximum number of events per second.
func recorderFor(r *http.Request) (*trace.Recorder, time.Duration, error) {
	text := r.URL.Query().Get("most")
	if text == "" {
		return trace.NewRecorder(), traceInterval, nil
	}
	most, err := strconv.Atoi(text)
	if err != nil || most < 1 {
		return nil, 0, badRequest{fmt.Errorf("most %q is not a number of events", text)}
	}
	return trace.NewThinRecorder(most / int(time.Second/thinInterval)), thinInterval, nil
}

// startTrace traces the queue pair with that number, or the next one that connects.
func (n *nic) startTrace(ctx context.Context, which string, rec *trace.Recorder) error {
	num, err := strconv.ParseUint(which, 10, 24)
	if which != api.NextQP && err != nil {
		return badRequest{fmt.Errorf("%q is neither a queue pair number nor %q", which, api.NextQP)}
	}
	var refused error
	err = n.shard.Do(ctx, func(now mono.Time, core *rocev2.NIC) {
		if which == api.NextQP {
			refused = core.TraceNext(func(now mono.Time, q rocev2.QPInfo) qp.Tracer {
				rec.Begin(now, n.traceStart(q))
				return rec
			})
			return
		}
		var q rocev2.QPInfo
		if q, refused = core.SetTracer(now, bth.QPN(num), rec); refused == nil {
			rec.Begin(now, n.traceStart(q))
		}
	})
	if refused != nil {
		return badRequest{refused}
	}
	return err
}

func (n *nic) traceStart(q rocev2.QPInfo) trace.Start {
	return trace.Start{Time: time.Now(), NIC: n.cfg.Name, QPN: uint32(q.Num), Dest: q.Attr.DestQPN, Profile: q.Profile,
		MTU: q.Attr.PathMTU.Bytes(), SQPSN: q.Attr.SQPSN, RQPSN: q.Attr.RQPSN}
}

// stopTrace stops a trace that startTrace started. Only one trace can wait for a queue pair.
func (n *nic) stopTrace(rec *trace.Recorder) {
	// Do fails only if the shard has ended; the shard then traces nothing.
	_ = n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) {
		if !rec.Begun() {
			_ = core.TraceNext(nil)
		}
		core.Untrace(rec)
	})
}

// postTrace streams a trace as JSON lines. It ends when the queue pair is destroyed, or when the client disconnects
// or ends its request body.
func (d *Daemon) postTrace(n *nic, w http.ResponseWriter, r *http.Request) error {
	rec, every, err := recorderFor(r)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("flor") {
		rec.ReadFlor()
	}
	if err := n.startTrace(r.Context(), r.PathValue("qp"), rec); err != nil {
		return err
	}
	over, stop := endOfBody(w, r)
	defer stop()
	w.Header().Set("Content-Type", "application/jsonl")
	w.WriteHeader(http.StatusOK)
	var lines bytes.Buffer
	enc, ctl := json.NewEncoder(&lines), http.NewResponseController(w)
	pass := func(write func(*json.Encoder) error) error {
		if err := write(enc); err != nil {
			return err
		}
		if _, err := lines.WriteTo(w); err != nil {
			return err
		}
		return ctl.Flush()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	err = ctl.Flush()
	for more := true; more && err == nil; {
		select {
		case <-r.Context().Done():
			more = false
		case <-over:
			more = false
		case <-rec.Done():
			more = false
		case <-n.ending:
			more = false
		case <-tick.C:
			err = pass(rec.Drain)
		}
	}
	n.stopTrace(rec)
	if err == nil {
		err = pass(rec.Finish)
	}
	written, lost := rec.Counts()
	n.log.Info("trace ended", "events", written, "lost", lost, "err", err)
	return nil
}
