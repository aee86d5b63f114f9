package retrans

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// TestInFlightCounts: the counters of packets in flight agree with the bits for any feedback.
func TestInFlightCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom([]Params{nil, {"sack": 0}, {"go_back_n": 1}, {"bdp_fc": 0, "bdp_packets": 5}}).Draw(t, "irn")
		irn, err := New("irn", p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Recovery{irn, NewSelective(64), NewEunomia(NewSelective(64))} {
			nxt := psn(rapid.Uint32Range(0, 1<<24-1).Draw(t, "first"))
			r.Reset(nxt)
			near := func(what string) bth.PSN { return r.Una().Add(rapid.IntRange(-2, 100).Draw(t, what)) }
			for range rapid.IntRange(0, 150).Draw(t, "steps") {
				op := rapid.SampledFrom([]string{"send", "send", "again", "again", "feedback", "feedback", "timeout", "RNR", "reset"}).Draw(t, "op")
				switch op {
				case "send":
					r.OnSent(1, nxt, 1, false)
					nxt = nxt.Next()
				case "again":
					if again, ok := r.NextRetransmit(); ok {
						r.OnSent(2, again, 1, true)
					}
				case "feedback":
					expected := r.Una().Add(rapid.IntRange(-2, 6).Draw(t, "expected"))
					f := reorder.Feedback{Expected: expected, Gap: rapid.Bool().Draw(t, "gap"), SACK: near("sack"),
						HasSACK: rapid.Bool().Draw(t, "has"), Refused: rapid.Bool().Draw(t, "refused")}
					r.OnFeedback(3, &f)
				case "timeout":
					r.OnTimeout(4)
				case "RNR":
					r.OnRNR(5)
				case "reset":
					if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
						r.Reset(nxt)
					}
				}
				if got, want := r.InFlight(), counted(r); got != want {
					t.Fatalf("%T after %q: %d in flight, the bits say %d", r, op, got, want)
				}
			}
			if r.OnFeedback(mono.Time(6), &reorder.Feedback{Expected: nxt}); r.InFlight() != 0 {
				t.Fatalf("%T: %d in flight after all was acknowledged", r, r.InFlight())
			}
		}
	})
}

// counted returns the number of bits of packets in flight.
func counted(r Recovery) uint32 {
	switch r := r.(type) {
	case *IRN:
		return r.unmarked(r.una, r.retx) + r.unmarked(r.lostTo, r.nxt)
	case *Selective:
		return r.unmarked(r.una, r.cur) + r.unmarked(r.end, r.nxt)
	case *Eunomia:
		return counted(r.Recovery)
	}
	panic("no bits")
}
