package retrans

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// TestHostileFeedback: for any feedback, counts stay within the outstanding packets, and the sender retransmits only
// outstanding packets. While packets are outstanding, a deadline is set.
func TestHostileFeedback(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool, err := bitpool.New(8 * rapid.IntRange(1, 20).Draw(t, "blocks"))
		if err != nil {
			t.Fatal(err)
		}
		first := psn(rapid.Uint32Range(0, 1<<24-1).Draw(t, "first"))
		p := rapid.SampledFrom([]Params{nil, {"sack": 0}, {"go_back_n": 1}, {"bdp_fc": 0, "bdp_packets": 5}, {"dynamic_rto": 1}, {"partial_ack": 0}, {"rewind": 1}}).Draw(t, "irn")
		irn, err := New("irn", p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Recovery{irn, meloIn(t, pool, Params{"rto_us": 1}), meloIn(t, pool, Params{"rto_us": 1, "partial_timeout": 0, "go_back_n": 1})} {
			r.Reset(first)
			nxt := first
			near := func(what string) bth.PSN { return r.Una().Add(rapid.IntRange(-3, 40).Draw(t, what)) }
			for range rapid.IntRange(0, 100).Draw(t, "steps") {
				switch rapid.IntRange(0, 3).Draw(t, "op") {
				case 0:
					span := rapid.Uint32Range(1, 12).Draw(t, "span")
					r.OnSent(1, nxt, span, false)
					nxt = nxt.Add(int(span))
				case 1:
					r.OnSent(2, near("again"), 1, true)
					if again, ok := r.NextRetransmit(); ok {
						r.OnSent(2, again, 1, true)
					}
				case 2:
					f := reorder.Feedback{Expected: near("expected"), Gap: rapid.Bool().Draw(t, "gap"), SACK: near("sack"),
						HasSACK: rapid.Bool().Draw(t, "has"), Refused: rapid.Bool().Draw(t, "refused"), NumHoles: uint8(rapid.IntRange(0, 4).Draw(t, "holes"))}
					for i := range f.Holes {
						f.Holes[i] = bth.Hole{Start: near("hole"), Len: rapid.Uint32Range(0, 1<<24).Draw(t, "length") >> rapid.IntRange(0, 24).Draw(t, "shift")}
					}
					r.OnFeedback(3, &f)
				case 3:
					if r.Deadline() != mono.Never {
						r.OnTimeout(r.Deadline())
						if again, ok := r.NextRetransmit(); !ok || again != r.Una() {
							t.Fatalf("%T: after a timeout %v, %v is sent again, una is %v", r, again, ok, r.Una())
						}
					}
				}
				out := nxt.Since(r.Una())
				if out > nxt.Since(first) || r.InFlight() > out {
					t.Fatalf("%T: una %v, nxt %v, %d in flight", r, r.Una(), nxt, r.InFlight())
				}
				again, ok := r.NextRetransmit()
				if ok && again.Since(r.Una()) >= out {
					t.Fatalf("%T: %v is sent again, una %v, nxt %v", r, again, r.Una(), nxt)
				}
				if out > 0 && !ok && r.Deadline() == mono.Never {
					t.Fatalf("%T: something is outstanding, and nothing will happen", r)
				}
			}
			r.OnFeedback(4, &reorder.Feedback{Expected: nxt})
			if r.InFlight() != 0 || r.Deadline() != mono.Never {
				t.Fatalf("%T: %d in flight after all was acknowledged", r, r.InFlight())
			}
		}
		if pool.Free() != pool.Blocks() {
			t.Fatalf("%d blocks of %d are free", pool.Free(), pool.Blocks())
		}
	})
}
