package sim

import (
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// TestTailLoss: after the loss of a message's last packet only a timeout triggers the retransmission. Simulated NICs
// are never late. Where papers define a timeout, it applies: 320 us for Eunomia. Only rc uses the timeout of the queue
// pair, usually 67 ms. An explicit setting overrides both.
func TestTailLoss(t *testing.T) {
	told := profile.Spec{Recovery: profile.Part{Name: "eunomia", Params: map[string]float64{"rto_us": 1000}}}
	for _, c := range []struct {
		name        string
		spec        profile.Spec
		least, most engine.Time // delay due to the loss, in microseconds
	}{
		{"irn", profile.Spec{}, 100, 400},
		{"melo", profile.Spec{}, 100, 1500},
		{"mp-rdma", profile.Spec{}, 0, 20}, // it retransmits unacknowledged packets when it has no new ones (FUSO)
		{"eunomia", profile.Spec{}, 310, 400},
		{"eunomia", profile.Spec{Recovery: profile.Part{Name: "selective"}}, 310, 400},
		{"eunomia", told, 990, 1100},
		{"rc", profile.Spec{}, 50_000, 300_000},
	} {
		var fct [2]engine.Time
		for i, faults := range []map[string][]string{nil, {"h0-leaf0": {"tx drop psn=+19 n=1"}}} {
			_, took := run(t, Config{Graph: clos(t), Switch: losslessSwitch, Profile: c.name, Spec: c.spec, Faults: faults,
				Apps: planned(workload.Planned{Src: 0, Dst: 3, Bytes: 20_000})})
			fct[i] = took["0-3"]
		}
		if cost := (fct[1] - fct[0]) / engine.Microsecond; cost < c.least || cost > c.most {
			t.Errorf("%s %+v: a lost last packet costs %d us, want %d to %d", c.name, c.spec, cost, c.least, c.most)
		}
	}
}
