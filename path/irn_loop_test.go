package path_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/path"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// single attaches a tracker and a recovery to a loop. Each packet has one path; nothing else limits the sender.
func single(tb fataler, l *loop, trk reorder.Tracker, rec retrans.Recovery, seed uint64) {
	sel, err := path.New("spray", path.Params{"paths": float64(len(l.links))})
	if err != nil {
		tb.Fatal(err)
	}
	l.plug(trk, rec, sel, &ccalgo.None{}, seed)
}

// irn returns both ends of IRN.
func irn(tb fataler, p retrans.Params, packets int, discards bool) (reorder.Tracker, retrans.Recovery) {
	p["bdp_packets"] = float64(packets)
	rec, err := retrans.New("irn", p)
	if err != nil {
		tb.Fatal(err)
	}
	return reorder.NewIRN(packets, discards), rec
}

// TestIRNDelivers runs any network with all variants that the paper compares (4.3). BDP-FC keeps the outstanding
// packets within its cap, so the receiver always has room for arriving packets.
func TestIRNDelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, seed := drawLoop(t, 600)
		p := rapid.SampledFrom([]retrans.Params{
			{}, {"sack": 0}, {"dynamic_rto": 1}, {"bdp_fc": 0}, {"partial_ack": 0}, {"rewind": 1},
			// Go-back-N with a timeout below the round trip would trigger itself.
			{"go_back_n": 1, "rto_low_us": 50_000, "rto_high_us": 50_000},
		}).Draw(t, "variant")
		bdpFC := p["bdp_fc"] == 0 && !slices.Contains(keys(p), "bdp_fc")
		discards := p["go_back_n"] == 1 && rapid.Bool().Draw(t, "discard")
		packets := rapid.IntRange(1, 130).Draw(t, "BDP cap")
		trk, rec := irn(t, p, packets, discards)
		single(t, l, trk, rec, seed)
		l.check = func() {
			checkOrder(t, l)
			if bdpFC && l.outstanding() > uint32(packets) {
				t.Fatalf("%d packets in flight, the cap is %d", l.outstanding(), packets)
			}
			if bdpFC && !discards && l.refused > 0 {
				t.Fatal("a packet within the cap was refused")
			}
		}
		finish(t, l)
	})
}

func keys(p retrans.Params) (out []string) {
	for k := range p {
		out = append(out, k)
	}
	return out
}

// finish runs until all packets are acknowledged and both ends have learned it.
func finish(t *rapid.T, l *loop) {
	if !l.run(2_000_000) {
		t.Fatalf("not done after %d steps: una %v of %d from %v, %d in flight, expected %v",
			l.steps, l.rec.Una(), l.total, l.first, l.rec.InFlight(), l.trk.Expected())
	}
	if l.trk.Expected() != l.first.Add(int(l.total)) || l.rec.InFlight() != 0 {
		t.Fatalf("expected %v, %d in flight", l.trk.Expected(), l.rec.InFlight())
	}
}

// TestMELODelivers runs any network with pools of any size at both ends, shared with other connections. Blocks are
// conserved. Occasionally another connection takes all free blocks; in the end the connection is swapped out.
func TestMELODelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, seed := drawLoop(t, 600)
		pools := [2]*bitpool.Pool{drawPool(t), drawPool(t)}
		trk := reorder.NewMELO(pools[0], rapid.IntRange(1, 1000).Draw(t, "buffer"))
		other := reorder.NewMELO(pools[0], 1<<20)
		swap := rapid.SampledFrom([]int{0, 50, 300}).Draw(t, "steps between swaps")
		p := retrans.Params{"rto_us": 50_000}
		if rapid.Bool().Draw(t, "as in the paper") {
			p["partial_timeout"], p["go_back_n"] = 0, 1
		}
		single(t, l, trk, melo(t, pools[1], p), seed)
		l.check = func() {
			checkOrder(t, l)
			if swap > 0 && l.steps%swap == 0 {
				all := bth.MakePSN(uint32(8*pools[0].Blocks() - 1))
				for range 1025 {
					other.Classify(all)
				}
				v := other.Classify(all)
				if other.Commit(all, v); v != reorder.Held || pools[0].Free() > 0 {
					t.Fatalf("verdict %d, %d blocks are free", v, pools[0].Free())
				}
				other.Reset(bth.MakePSN(0))
			}
		}
		finish(t, l)
		for i, p := range pools {
			if p.Free() != p.Blocks() {
				t.Fatalf("pool %d: %d of %d blocks are free at the end", i, p.Free(), p.Blocks())
			}
		}
	})
}

// melo returns MELO's sender.
func melo(tb fataler, pool *bitpool.Pool, p retrans.Params) retrans.Recovery {
	r := param.NewReader("retrans: melo", p)
	rec := retrans.ReadMELO(r, pool)
	if err := r.Err(); err != nil {
		tb.Fatal(err)
	}
	return rec
}

func drawPool(t *rapid.T) *bitpool.Pool {
	p, err := bitpool.New(8 * rapid.IntRange(1, 150).Draw(t, "blocks"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLossGoodput: at 1 % loss IRN and MELO keep most of a link, and go-back-N loses most of it (IRN 4.3, MELO
// 4.1.1). The network is one path of 10 Gb/s with a base round trip of 16 us.
func TestLossGoodput(t *testing.T) {
	const total = 20_000
	lossy := []link{{delay: 8 * time.Microsecond, perByte: 0.8, loss: 0.01}}
	pool := func() *bitpool.Pool {
		p, err := bitpool.New(1024)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	gbn := func() (reorder.Tracker, retrans.Recovery) {
		return reorder.NewStrict(), retrans.NewGoBackN()
	}
	for _, c := range []struct {
		name     string
		make     func() (reorder.Tracker, retrans.Recovery)
		lo, hi   float64 // Gb/s
		mostRtx  int
		mostTime int
	}{
		{"irn", func() (reorder.Tracker, retrans.Recovery) { return irn(t, retrans.Params{}, 110, false) }, 8.8, 10, 500, 60},
		{"irn, go-back-N", func() (reorder.Tracker, retrans.Recovery) { return irn(t, retrans.Params{"go_back_n": 1}, 110, true) }, 0, 8, 40 * total, total},
		{"irn, without SACK", func() (reorder.Tracker, retrans.Recovery) { return irn(t, retrans.Params{"sack": 0}, 110, false) }, 8, 10, 500, 60},
		{"melo", func() (reorder.Tracker, retrans.Recovery) {
			return reorder.NewMELO(pool(), 1024), melo(t, pool(), nil)
		}, 9, 10, 1000, 60},
		{"rc", gbn, 0, 5, 100 * total, total},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoop(7, bth.MakePSN(0xfff000), total, slices.Clone(lossy))
			trk, rec := c.make()
			sel, err := path.New("single", nil)
			if err != nil {
				t.Fatal(err)
			}
			l.plug(trk, rec, sel, window{bytes: 110 << 10}, 7)
			if !l.run(10_000_000) {
				t.Fatalf("not done: %v", l.rec.Una())
			}
			t.Logf("%.2f Gb/s, %d sent again, %d refused, %d timeouts", l.gbps(), l.rtx, l.refused, l.timeouts)
			if g := l.gbps(); g < c.lo || g > c.hi {
				t.Errorf("%.2f Gb/s, want %v to %v", g, c.lo, c.hi)
			}
			if l.rtx > c.mostRtx || l.timeouts > c.mostTime {
				t.Errorf("%d sent again, %d timeouts, want at most %d and %d", l.rtx, l.timeouts, c.mostRtx, c.mostTime)
			}
		})
	}
}
