package sim

import (
	"math"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/workload"
)

// TestSamples: goodput is the payload written to memory, without retransmissions and duplicates. Links are paused as
// long as ports report. The queue of a link is recorded, and progress ends at one.
func TestSamples(t *testing.T) {
	for _, name := range []string{"irn", "rc"} {
		t.Run(name, func(t *testing.T) { testSamples(t, name) })
	}
}

func testSamples(t *testing.T, name string) {
	const each, senders = 1_000_000, 4
	var ps []workload.Planned
	for h := 1; h <= senders; h++ {
		ps = append(ps, workload.Planned{Src: h, Dst: 0, Bytes: each})
	}
	s, err := New(Config{Graph: clos(t), Switch: losslessSwitch, Profile: name, Apps: planned(ps...), Sample: engine.Microsecond,
		Queues: []string{"leaf0-h0"}, Payload: senders * each, Check: true,
		Faults: map[string][]string{"h1-leaf0": {"tx drop psn=+3..50 n=1"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil || r.Retransmitted < 40 {
		t.Fatalf("%v, %d sent again", err, r.Retransmitted)
	}
	bytes, paused, most := 0.0, engine.Time(0), int64(0)
	for _, x := range r.Samples {
		bytes += x.Goodput / 8 * engine.Microsecond.Seconds()
		paused += x.Paused
	}
	for _, q := range r.Queues {
		most = max(most, q.Bytes)
	}
	if math.Abs(bytes-senders*each) > 1 {
		t.Errorf("%.0f bytes arrived", bytes)
	}
	if paused != r.Paused || name == "rc" && paused == 0 { // irn has fewer bytes in flight than the pause threshold
		t.Errorf("links were stopped for %d ps, ports say %d", paused, r.Paused)
	}
	if len(r.Queues) != len(r.Samples) || most < 100_000 || most > r.Peak {
		t.Errorf("%d queues of %d samples, up to %d bytes", len(r.Queues), len(r.Samples), most)
	}
	if p := s.Progress(); p.Part != 1 || p.Done != senders || p.Under != 0 {
		t.Errorf("%+v", p)
	}
}
