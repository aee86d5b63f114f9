package aimd_test

import (
	"os"
	"testing"
	"time"

	"example.org/aimd/aimd"

	"roced.io/roced/entry/simtest"
)

func TestMain(m *testing.M) {
	aimd.Register()
	os.Exit(m.Run())
}

// incast simulates eight senders of 1 MB each to one host, over a switch that marks
// no packets.
func incast(t *testing.T, congestion simtest.Module) *simtest.Result {
	t.Helper()
	r, err := simtest.Run(simtest.Incast{Congestion: congestion,
		Recovery: simtest.Module{Name: "irn", Params: map[string]float64{"bdp_fc": 0}}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestIncast checks that the queue stays below a quarter of its length without
// congestion control, and that the link stays busy.
func TestIncast(t *testing.T) {
	without, with := incast(t, simtest.Module{Name: "none"}), incast(t, simtest.Module{Name: aimd.Name})
	if with.LongestQueue > without.LongestQueue/4 {
		t.Errorf("longest queue %d bytes, without congestion control %d", with.LongestQueue, without.LongestQueue)
	}
	if ideal := 640 * time.Microsecond; with.Time > ideal*13/10 { // 8 MB at 100 Gb/s
		t.Errorf("completed after %v, ideal %v", with.Time, ideal)
	}
	t.Logf("longest queue %d bytes, without congestion control %d", with.LongestQueue, without.LongestQueue)
}
