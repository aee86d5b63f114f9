package sim

import (
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// TestTailLoss: when a message's last packet is lost nothing but a timeout tells of it. Simulated
// NICs are never late: where papers name a timeout it is theirs, 320 us for Eunomia, and the queue
// pair's, of which programs choose 67 ms, is for rc alone. What is said takes its place.
func TestTailLoss(t *testing.T) {
	told := profile.Spec{Recovery: profile.Part{Name: "eunomia", Params: map[string]float64{"rto_us": 1000}}}
	for _, c := range []struct {
		name        string
		spec        profile.Spec
		least, most engine.Time // what the loss costs, in microseconds
	}{
		{"irn", profile.Spec{}, 100, 400},
		{"melo", profile.Spec{}, 100, 1500},
		{"mp-rdma", profile.Spec{}, 0, 20}, // it sends unacknowledged packets again when it has no new ones (FUSO)
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
