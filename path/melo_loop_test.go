package path_test

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// TestMELOBDP: the BDP that sizes the pool also limits the outstanding packets, so the pool suffices (3.2.3). Without
// that limit, lost retransmissions, which the timeout repairs, exhaust the pool. The paper has 99.0 % of the link at
// 1 % loss and a round trip of 16 us (4.1.1). At a round trip of 200 us it has a peak of 96.9 % of the pool (4.2.2).
func TestMELOBDP(t *testing.T) {
	for _, c := range []struct {
		name string
		p    retrans.Params
		rtt  time.Duration
		loss float64
		gbps [2]float64 // between
		peak [2]float64 // % of the pool, between
	}{
		{"1 %", retrans.Params{"rto_us": 100}, 16, 0.01, [2]float64{39.2, 40.1}, [2]float64{0, 97}},
		{"1 %, RTO as IRN's", nil, 16, 0.01, [2]float64{35, 40}, [2]float64{0, 97}},
		{"1 %, without a bound", retrans.Params{"bdp_packets": 1 << 20}, 16, 0.01, [2]float64{0, 35}, [2]float64{99, 100}},
		{"0.1 %", nil, 16, 0.001, [2]float64{40, 40.1}, [2]float64{0, 97}},
		{"round trip of 200 us, 2 %", nil, 200, 0.02, [2]float64{0, 40}, [2]float64{93, 97}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const seed = 2
			l := newLoop(seed, bth.MakePSN(0xffff00), 60_000, []link{{delay: c.rtt * time.Microsecond / 2, loss: c.loss}})
			l.nic, l.paced = link{perByte: 0.2}, true
			var pools [2]*bitpool.Pool
			for i := range pools {
				var err error
				if pools[i], err = bitpool.New(1024); err != nil {
					t.Fatal(err)
				}
			}
			sel, err := path.New("single", nil)
			if err != nil {
				t.Fatal(err)
			}
			l.plug(reorder.NewMELO(pools[0], 1024), melo(t, pools[1], c.p), sel, ccalgo.None{}, seed)
			most := 0
			l.check = func() { most = max(most, pools[0].Blocks()-pools[0].Free()) }
			if !l.run(5_000_000) {
				t.Fatalf("not done: %v", l.rec.Una())
			}
			peak := 100 * float64(most) / float64(pools[0].Blocks())
			t.Logf("%.1f Gb/s, %d sent again, %d refused, %d timeouts, %.1f %% of the pool", l.gbps(), l.rtx, l.refused, l.timeouts, peak)
			if g := l.gbps(); g < c.gbps[0] || g > c.gbps[1] {
				t.Errorf("%.1f Gb/s, want %v", g, c.gbps)
			}
			if peak < c.peak[0] || peak > c.peak[1] {
				t.Errorf("%.1f %% of the pool, want %v", peak, c.peak)
			}
		})
	}
}
