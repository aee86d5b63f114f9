package qp

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

var updateTraces = flag.Bool("update-traces", false, "write the golden traces anew")

// traceLog is a tracer that records its events.
type traceLog struct {
	strings.Builder
	name   string
	again  uint64
	closed int
}

func (l *traceLog) Closed() { l.closed++ }

func (l *traceLog) Trace(now mono.Time, e TraceEvent) {
	fmt.Fprintf(l, "%6d %s %s", now, l.name, e.Kind)
	if e.Response {
		fmt.Fprint(l, " response")
	}
	switch e.Kind {
	case TraceSent:
		fmt.Fprintf(l, " %v+%d, %d bytes", e.PSN, e.Span, e.Length)
		if e.Retransmission {
			l.again++
			fmt.Fprint(l, ", again")
		}
	case TraceAck:
		f := &e.Feedback
		fmt.Fprintf(l, " %v gap=%t", f.Expected, f.Gap)
		if f.HasSACK {
			fmt.Fprintf(l, " sack=%v", f.SACK)
		}
		fmt.Fprintf(l, " rtt=%v", e.RTT)
	case TraceReceived:
		verdict := map[reorder.Verdict]string{reorder.InOrder: "in order", reorder.Held: "held", reorder.Duplicate: "duplicate", reorder.Beyond: "beyond"}
		fmt.Fprintf(l, " %v %s, degree %d, %v", e.PSN, verdict[e.Verdict], e.Degree, e.Drop)
	case TraceLimits:
		fmt.Fprintf(l, " %d %d", e.Window, e.Rate)
	case TraceTimeout:
		fmt.Fprintf(l, " at %v, %d lost", e.PSN, e.Lost)
	case TraceFootprint:
		fmt.Fprintf(l, " %d", e.Bytes)
	}
	fmt.Fprintln(l)
}

// tracedPair returns a pair that moves a WRITE of six packets and a READ of three. The third packet of the WRITE and
// the first response of the READ are lost once.
func tracedPair(t testing.TB, profile func() Profile, tracers ...Tracer) *pair {
	c := lossless
	c.profile = profile
	p := newPair(t, c)
	for i, tr := range tracers {
		p.ends[i].q.SetTracer(p.now, tr)
	}
	writes, reads := 0, 0
	p.faults = func(_ int, k *bth.Packet) fault {
		switch {
		case k.Opcode.IsWrite():
			writes++
			return fault{drop: writes == 3}
		case k.Opcode.IsReadResponse():
			reads++
			return fault{drop: reads == 1}
		}
		return fault{}
	}
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	l.add(WRWrite, 6*256, 0, rng)
	l.add(WRRead, 3*256, 0, rng)
	return p
}

// TestTraceGolden: a small loss, event by event, for each transport.
func TestTraceGolden(t *testing.T) {
	for name, profile := range map[string]func() Profile{
		"rc": nil, "irn": extended["irn"], "melo": extended["melo"], "mp-rdma": extended["mp-rdma"],
		"eunomia": extended["eunomia over selective repeat"],
	} {
		t.Run(name, func(t *testing.T) {
			var ends [2]traceLog
			a, b := &ends[0], &ends[1]
			a.name, b.name = "a", "b"
			p := tracedPair(t, profile, a, b)
			p.run(t)
			for i := range ends {
				if n := p.ends[i].q.ctr.RetransmittedPackets; n != ends[i].again {
					t.Errorf("end %d: %d retransmissions in the trace, the counter says %d", i, ends[i].again, n)
				}
				p.ends[i].q.CloseTrace()
				p.ends[i].q.CloseTrace()
				if ends[i].closed != 1 {
					t.Errorf("closed %d times", ends[i].closed)
				}
			}
			got, file := a.String()+b.String(), filepath.Join("testdata", "trace-"+name+".golden")
			if *updateTraces {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestTraceChangesNothing: a traced queue pair sends the same packets.
func TestTraceChangesNothing(t *testing.T) {
	for name, profile := range extended {
		var log traceLog
		with, without := tracedPair(t, profile, &log), tracedPair(t, profile)
		with.run(t)
		without.run(t)
		if d := cmp.Diff(without.trace, with.trace); d != "" || log.Len() == 0 {
			t.Errorf("%s: %d bytes of trace, (-without +with)\n%s", name, log.Len(), d)
		}
	}
}

// countTracer counts events.
type countTracer struct{ events int }

func (c *countTracer) Trace(mono.Time, TraceEvent) { c.events++ }
func (c *countTracer) Closed()                     {}

// TestTraceAllocs: events allocate nothing, with or without a tracer.
func TestTraceAllocs(t *testing.T) {
	p := newPair(t, lossless)
	q, count := p.ends[0].q, &countTracer{}
	k := bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 20}
	step := func() {
		q.traceSent(p.now, &k, 1, true)
		q.traceAck(p.now, &reorder.Feedback{}, 1, false)
		q.traceTimeout(p.now, k.PSN, 1, false)
		q.Receive(p.now, &k, RxMeta{})
		q.OnCNP(p.now)
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations without a tracer", n)
	}
	q.SetTracer(p.now, count)
	if n := testing.AllocsPerRun(100, step); n != 0 || count.events < 300 {
		t.Errorf("%v allocations with a tracer, %d events", n, count.events)
	}
	q.Untrace(&traceLog{})
	before := count.events
	if step(); count.events == before {
		t.Error("somebody else's Untrace has ended the trace")
	}
	q.Untrace(count)
	before = count.events
	if step(); count.events != before {
		t.Error("events after the end")
	}
}
