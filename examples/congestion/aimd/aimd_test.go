package aimd_test

import (
	"os"
	"testing"

	"example.org/aimd/aimd"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

func TestMain(m *testing.M) {
	aimd.Register()
	os.Exit(m.Run())
}

// incast simulates eight senders of 1 MB each to one host, over a switch that marks nothing.
func incast(t *testing.T, congestion profile.Part) (longestQueue int64, took engine.Time) {
	t.Helper()
	s, err := sim.New(sim.Config{
		Graph: fabric.Star(fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}, 9),
		Switch: func(_, _ int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 16 << 20}}
		},
		Profile: "irn",
		Spec: profile.Spec{Congestion: congestion,
			Recovery: profile.Part{Name: "irn", Params: map[string]float64{"bdp_fc": 0}}},
		Apps: []workload.App{&workload.OpenLoop{Next: workload.List(workload.Incast(9, 0, 8, 1_000_000, 0))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil || len(r.Flows) != 8 {
		t.Fatalf("%d messages, %v", len(r.Flows), err)
	}
	return r.Peak, r.Ended
}

// TestIncast: the queue stays below a quarter of what it is without congestion control, and the link
// is still used.
func TestIncast(t *testing.T) {
	without, _ := incast(t, profile.Part{Name: "none"})
	with, took := incast(t, profile.Part{Name: aimd.Name})
	if with > without/4 {
		t.Errorf("the queue has up to %d bytes, without congestion control %d", with, without)
	}
	if ideal := engine.Time(8 * 1_000_000 * 8 * 10); took > ideal*13/10 { // 10 ps a bit
		t.Errorf("it took %v, ideal are %v", took.Duration(), ideal.Duration())
	}
	t.Logf("longest queue %d bytes, without congestion control %d", with, without)
}
