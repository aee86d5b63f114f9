package retrans

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

func psn(v uint32) bth.PSN { return bth.MakePSN(v) }

func next(t *testing.T, g Recovery, want int) {
	t.Helper()
	got := -1
	if p, ok := g.NextRetransmit(); ok {
		got = int(p.Uint32())
	}
	if got != want {
		t.Fatalf("next retransmission %d, want %d", got, want)
	}
}

func TestGoBackNOncePerLoss(t *testing.T) {
	g := NewGoBackN()
	g.Reset(psn(0xfffffe))
	for i := range uint32(6) {
		g.OnSent(1, psn(0xfffffe+i), 1, false)
	}
	if n := g.InFlight(); n != 6 {
		t.Fatalf("%d in flight", n)
	}
	nak := reorder.Feedback{Expected: psn(0), Gap: true}
	if out := g.OnFeedback(2, &nak); out != (Outcome{Acked: 2, Delivered: 2, Lost: 4}) {
		t.Fatalf("NAK: %+v", out)
	}
	next(t, g, 0)
	if out := g.OnFeedback(3, &nak); out != (Outcome{}) {
		t.Fatalf("copy of the NAK before the retransmission: %+v", out)
	}
	g.OnSent(4, psn(0), 1, true)
	g.OnSent(4, psn(1), 1, true)
	if out := g.OnFeedback(5, &nak); out != (Outcome{}) {
		t.Fatalf("copy of the NAK after the retransmission: %+v", out)
	}
	next(t, g, 2)
	// The receiver had 2 and 3 after all: the sender skips their retransmission.
	if out := g.OnFeedback(6, &reorder.Feedback{Expected: psn(3)}); out != (Outcome{Acked: 3, Delivered: 3}) {
		t.Fatalf("ACK beyond the retransmission: %+v", out)
	}
	next(t, g, 3)
	// A new loss.
	g.OnSent(7, psn(3), 1, true)
	if out := g.OnFeedback(8, &reorder.Feedback{Expected: psn(3), Gap: true}); out != (Outcome{Lost: 1}) {
		t.Fatalf("new NAK: %+v", out)
	}
	next(t, g, 3)
}

// TestGoBackNPremature: packets that a slow peer acknowledges after a timeout are not retransmitted.
func TestGoBackNPremature(t *testing.T) {
	g := NewGoBackN()
	g.SetSlowPeer(true)
	g.Reset(psn(0))
	for i := range uint32(6) {
		g.OnSent(1, psn(i), 1, false)
	}
	g.OnTimeout(2)
	g.OnSent(2, psn(0), 1, true)
	g.OnFeedback(3, &reorder.Feedback{Expected: psn(1)})
	next(t, g, 1)
	g.OnFeedback(4, &reorder.Feedback{Expected: psn(2)})
	if p, ok := g.NextRetransmit(); ok || g.InFlight() != 4 {
		t.Errorf("retransmits %v, %d in flight", p, g.InFlight())
	}
	if out := g.OnFeedback(5, &reorder.Feedback{Expected: psn(4), Gap: true}); out != (Outcome{Acked: 2, Delivered: 2, Lost: 2}) {
		t.Errorf("NAK: %+v", out)
	}
	next(t, g, 4)
}

func TestGoBackNStale(t *testing.T) {
	g := NewGoBackN()
	g.Reset(psn(10))
	g.OnSent(1, psn(10), 4, false)
	for _, f := range []reorder.Feedback{
		{Expected: psn(9)}, {Expected: psn(9), Gap: true}, {Expected: psn(15)}, {Expected: psn(15), Gap: true},
		{Expected: psn(10 + 1<<23)},
	} {
		if out := g.OnFeedback(2, &f); out != (Outcome{}) || g.Una() != psn(10) {
			t.Fatalf("%+v: %+v, una %v", f, out, g.Una())
		}
	}
	// A PSN beyond the sent packets is not missing.
	if out := g.OnFeedback(3, &reorder.Feedback{Expected: psn(14), Gap: true}); out != (Outcome{Acked: 4, Delivered: 4}) {
		t.Fatalf("%+v", out)
	}
	next(t, g, -1)
}

func TestGoBackNTimer(t *testing.T) {
	g := NewGoBackN()
	check := func(what string, want mono.Time) {
		t.Helper()
		if d := g.Deadline(); d != want {
			t.Fatalf("%s: deadline %d, want %d", what, d, want)
		}
	}
	g.SetTimeout(100 * time.Nanosecond)
	g.Reset(psn(0))
	check("nothing sent", mono.Never)
	g.OnSent(1000, psn(0), 1, false)
	g.OnSent(1050, psn(1), 1, false)
	check("from the oldest", 1100)
	g.OnFeedback(1060, &reorder.Feedback{Expected: psn(1)})
	check("progress", 1160)
	if out := g.OnTimeout(1160); out.Lost != 1 {
		t.Fatalf("timeout: %+v", out)
	}
	check("waits to be sent again", mono.Never)
	g.OnSent(1500, psn(1), 1, true)
	check("sent again", 1600)
	g.SetTimeout(0)
	check("infinite", mono.Never)
	g.SetTimeout(100)
	g.OnFeedback(1550, &reorder.Feedback{Expected: psn(2)})
	check("all acknowledged", mono.Never)
}

// TestGoBackNWideSpan checks a READ of 2 GiB at the smallest MTU.
func TestGoBackNWideSpan(t *testing.T) {
	g := NewGoBackN()
	g.Reset(psn(5))
	g.OnSent(1, psn(5), 1<<23, false)
	if n := g.InFlight(); n != 1<<23 {
		t.Fatalf("%d in flight", n)
	}
	end := psn(5 + 1<<23)
	if out := g.OnFeedback(2, &reorder.Feedback{Expected: end.Add(-1), Gap: true}); out.Acked != 1<<23-1 || out.Lost != 1 {
		t.Fatalf("%+v", out)
	}
}

// TestGoBackNDelivers runs any pattern of losses and duplicates against a receiver that accepts packets in order
// only. Each packet arrives once, in order.
func TestGoBackNDelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 40
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		g := NewGoBackN()
		g.SetTimeout(1000)
		g.Reset(psn(first))
		lose := func() bool { return rapid.IntRange(0, 3).Draw(t, "lose") == 0 }
		sent, expected, nakSeen := uint32(0), uint32(0), false
		now := mono.Time(1)
		arrive := func(p bth.PSN) {
			d := p.Diff(psn(first + expected))
			switch {
			case d == 0:
				expected++
				nakSeen = false
			case d > 0 && nakSeen:
				return
			case d > 0:
				nakSeen = true
			}
			if !lose() {
				g.OnFeedback(now, &reorder.Feedback{Expected: psn(first + expected), Gap: d > 0})
			}
		}
		for steps := 0; g.Una() != psn(first+total); steps++ {
			if steps > 10000 {
				t.Fatal("no progress")
			}
			now++
			p, rtx := g.NextRetransmit()
			switch {
			case rtx:
			case sent < total && g.InFlight() < 8:
				p = psn(first + sent)
				sent++
			default:
				now = g.Deadline()
				g.OnTimeout(now)
				continue
			}
			g.OnSent(now, p, 1, rtx)
			if !lose() {
				arrive(p)
			}
		}
		if expected != total {
			t.Fatalf("%d arrived", expected)
		}
	})
}

func TestGoBackNFactory(t *testing.T) {
	if _, err := New("gobackn", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := New("gobackn", Params{"n": 1}); err == nil {
		t.Fatal("unknown parameter accepted")
	}
}

func TestGoBackNAllocations(t *testing.T) {
	r, _ := New("gobackn", nil)
	p, f := psn(0), new(reorder.Feedback)
	if n := testing.AllocsPerRun(1000, func() {
		r.OnSent(1, p, 1, false)
		p = p.Next()
		f.Expected, f.Gap = p, true
		r.OnFeedback(2, f)
		r.NextRetransmit()
		r.OnTimeout(3)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
