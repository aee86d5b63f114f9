package sim_test

import (
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
)

// insideOf sends a message of 500 packets with fault rules on one of two links.
func insideOf(t *testing.T, profile, link string, rules ...string) *result.Result {
	t.Helper()
	s, err := sim.New(sim.Config{
		Graph: fabric.Star(fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}, 2),
		Switch: func(_, _ int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 1 << 20}}
		},
		Profile: profile, Inside: true, Faults: map[string][]string{link: rules},
		Apps: []workload.App{&workload.OpenLoop{Next: workload.List([]workload.Planned{{Dst: 1, Bytes: 500_000}})}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestInside: after a lost packet, later packets arrive ahead of a gap, and the receiver keeps state for them. Senders
// measure round trips; the simulator knows the true ones.
func TestInside(t *testing.T) {
	r := insideOf(t, "irn", "h0-s0", "tx drop psn=+3 n=1")
	in := r.Inside
	if in.Packets != 500 || in.Degree.Max < 2 || in.Ahead < 0.05 || in.StateMost == 0 || in.HostStateMost < in.StateMost {
		t.Errorf("a packet was lost: %+v", in)
	}
	// Four links of 1 us, plus the transmission times of a packet and its acknowledgement.
	if in.RTT.Count == 0 || in.RTT.P50 < 4 || in.RTT.P50 > 12 || in.RTTError.P50 > 0.1 {
		t.Errorf("round trips %+v, wrong by %+v", in.RTT, in.RTTError)
	}
	if r.Retransmitted != 1 || r.Duplicates != 0 {
		t.Errorf("%d sent again, %d in vain", r.Retransmitted, r.Duplicates)
	}
	// Its acknowledgements also report packets ahead of the gap.
	if in := insideOf(t, "eunomia", "h0-s0", "tx drop psn=+3 n=1").Inside; in.RTT.Count == 0 || in.RTTError.Max > 0.1 {
		t.Errorf("round trips of eunomia %+v, wrong by %+v", in.RTT, in.RTTError)
	}
	if in := insideOf(t, "irn", "h0-s0").Inside; in.Degree.Max != 0 || in.Ahead != 0 {
		t.Errorf("nothing was lost: %+v", in)
	}
}

// TestDuplicates: retransmissions of packets that have arrived are counted separately; dropped packets do not count.
func TestDuplicates(t *testing.T) {
	if r := insideOf(t, "rc", "h0-s0", "tx drop psn=+3 n=1"); r.Retransmitted == 0 || r.Duplicates != 0 {
		t.Errorf("a packet was lost: %d sent again, %d in vain", r.Retransmitted, r.Duplicates)
	}
	if r := insideOf(t, "rc", "h1-s0", "tx drop op=ack n=1,2,3"); r.Retransmitted == 0 || r.Duplicates == 0 {
		t.Errorf("acknowledgements were lost: %d sent again, %d in vain", r.Retransmitted, r.Duplicates)
	}
}
