package retrans

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// TestBackoff: consecutive timeouts without progress double the recovery's own timeout up to a limit, which is a
// parameter. Progress and a reset end the backoff.
func TestBackoff(t *testing.T) {
	for name, p := range map[string]Params{
		"irn": {"rto_low_us": 10, "rto_high_us": 10}, "melo": {"rto_us": 10}, "eunomia": {"rto_us": 10}, "mp-rdma": {"rto_us": 10},
		"gobackn": {"rto_us": 10}, "selective": {"rto_us": 10},
	} {
		for _, most := range []int{maxDoublings, 2, 0} {
			if p["rto_doublings"] = float64(most); most == maxDoublings {
				delete(p, "rto_doublings")
			}
			testBackoff(t, name, p, most)
		}
	}
}

func testBackoff(t *testing.T, name string, p Params, most int) {
	{
		r, err := New(name, p)
		if err != nil {
			t.Fatal(err)
		}
		now := mono.Time(0)
		sent := func(rtx bool) {
			r.OnSent(now, r.Una(), 1, rtx)
		}
		expect := func(what string, times int) {
			t.Helper()
			if d := r.Deadline().Sub(now); d != time.Duration(times)*10*time.Microsecond {
				t.Errorf("%s, %s: %v", name, what, d)
			}
		}
		for range 2 {
			r.Reset(psn(0))
			sent(false)
			expect("at first", 1)
			for i := 1; i < 10; i++ {
				now = r.Deadline()
				r.OnTimeout(now)
				sent(true)
				expect("doubled", 1<<min(i, most))
			}
		}
		now++
		r.OnFeedback(now, &reorder.Feedback{Expected: psn(1)})
		sent(false)
		expect("after progress", 1)
	}
}
