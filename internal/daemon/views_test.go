package daemon

import (
	"strings"
	"testing"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// TestLosses: each counter of frames that were not sent has a reason in the view of the link.
func TestLosses(t *testing.T) {
	d, _ := startHere(t)
	if err := d.nic("rxe_a").shard.Do(t.Context(), func(_ mono.Time, core *rocev2.NIC) {
		counters := core.CounterSnapshot()
		for i := range counters {
			counters[i].Value = 3
			if c := counters[i].Name; strings.HasPrefix(c, "tx_dropped_") && lossReasons[c] == "" {
				t.Errorf("%s has no reason", c)
			}
		}
		if got := losses(counters, 1); len(got) != len(lossReasons) {
			t.Errorf("%d losses of %d: %v", len(got), len(lossReasons), got)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
