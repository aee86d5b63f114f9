package retrans

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// TestHalfCircle sends and acknowledges more packets than half of the PSN circle, with a few losses, and then idles
// for days. No PSN or time that a recovery stores may wrap meanwhile.
func TestHalfCircle(t *testing.T) {
	for name, p := range map[string]Params{
		"gobackn": nil, "selective": nil, "irn": {"dynamic_rto": 1}, "melo": nil, "mp-rdma": {"rto_us": 320},
		"eunomia": {"rto_us": 320, "selective_repeat": 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := New(name, p)
			if err != nil {
				t.Fatal(err)
			}
			r.SetTimeout(time.Millisecond)
			first := psn(0xffff00)
			r.Reset(first)
			now := mono.Time(0)
			again := func() (n int) {
				for q, ok := r.NextRetransmit(); ok; q, ok = r.NextRetransmit() {
					now++
					r.OnSent(now, q, 1, true)
					n++
				}
				return n
			}
			// In each group of eight packets at most the first is lost, and only occasionally.
			lose := func(at bth.PSN) {
				f := reorder.Feedback{Expected: at, Gap: true, HasSACK: true, SACK: at.Add(7), NumHoles: 1,
					Holes: [bth.MaxHoles]bth.Hole{{Start: at, Len: 1}}}
				r.OnFeedback(now, &f)
				if n := again(); (n == 0 || n > 8) && name != "mp-rdma" {
					t.Fatalf("%v: %d are sent again", at, n)
				}
			}
			send := func(at bth.PSN) {
				for k := range 8 {
					now++
					r.OnSent(now, at.Add(k), 1, false)
				}
			}
			at := first
			round := func(lossy bool) {
				send(at)
				if lossy {
					lose(at)
				}
				at = at.Add(8)
				now++
				r.OnFeedback(now, &reorder.Feedback{Expected: at})
				if _, again := r.NextRetransmit(); again || r.Una() != at || r.InFlight() != 0 || r.Deadline() != mono.Never {
					t.Fatalf("at %v: una %v, %d in flight, deadline %v", at, r.Una(), r.InFlight(), r.Deadline())
				}
			}
			round(true)
			for range 1<<20 + 1<<12 {
				round(false)
			}
			round(true)
			now = now.Add(30 * 24 * time.Hour)
			round(true)
			if now = now.Add(30 * 24 * time.Hour); r.Deadline() != mono.Never {
				t.Error("a deadline with nothing outstanding")
			}
			now++
			r.OnSent(now, at, 1, false)
			if d := r.Deadline().Sub(now); d <= 0 || d > time.Second {
				t.Errorf("a timeout of %v", d)
			}
		})
	}
}
