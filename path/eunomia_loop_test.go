package path_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// window is a fixed congestion window, in bytes.
type window struct {
	ccalgo.None
	bytes uint64
}

func (w window) Limits() (windowBytes, rateBps uint64) { return w.bytes, ccalgo.Unlimited }

// eunomia attaches its agents to a loop, over go-back-N or selective repeat. Packets are sprayed over the links.
func eunomia(tb fataler, l *loop, trk reorder.Tracker, seed uint64, packets int, selective bool, rtoUs float64) {
	p := retrans.Params{"rto_us": rtoUs}
	if selective {
		p["selective_repeat"] = 1
	}
	rec, err := retrans.New("eunomia", p)
	if err != nil {
		tb.Fatal(err)
	}
	sel, err := path.New("spray", path.Params{"paths": float64(len(l.links))})
	if err != nil {
		tb.Fatal(err)
	}
	l.plug(trk, rec, sel, window{bytes: uint64(packets) * uint64(l.mtu)}, seed)
}

// TestEunomiaDelivers runs any network with any amount of memory, including none.
func TestEunomiaDelivers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, seed := drawLoop(t, 300)
		mem, err := reorder.NewMemory(rapid.IntRange(1, 60).Draw(t, "blocks"), 16*rapid.IntRange(1, 16).Draw(t, "rows"))
		if err != nil {
			t.Fatal(err)
		}
		eunomia(t, l, reorder.NewEunomia(mem), seed, rapid.IntRange(1, 160).Draw(t, "window"), rapid.Bool().Draw(t, "selective"), 50_000)
		l.check = func() { checkOrder(t, l) }
		if !l.run(2_000_000) {
			t.Fatalf("not done: una %v of %d from %v, %d in flight", l.rec.Una(), l.total, l.first, l.rec.InFlight())
		}
		if l.trk.Expected() != l.first.Add(int(l.total)) {
			t.Fatalf("expected %v", l.trk.Expected())
		}
		// Duplicates may still arrive, but all packets up to LastSeq were received in order.
		if mem.Free() != mem.Blocks() {
			t.Fatalf("%d of %d blocks are free at the end", mem.Free(), mem.Blocks())
		}
	})
}

// TestEunomiaSpraying runs four paths of unequal delay. No SACK triggers recovery, so Eunomia transmits each packet
// once. The transport alone would go back all the time.
func TestEunomiaSpraying(t *testing.T) {
	unequal := func() []link {
		links := equal(4)
		for i := range links {
			links[i].delay += time.Duration(i) * 5 * time.Microsecond
		}
		return links
	}
	const total = 5_000
	for _, c := range []struct {
		name      string
		trk       func(*reorder.Memory) reorder.Tracker
		links     []link
		selective bool
		window    int     // packets
		gbps      float64 // at least
		again     [2]int  // retransmissions, between
		peak      [2]int  // blocks in use, between
	}{
		{"strict", func(*reorder.Memory) reorder.Tracker { return reorder.NewStrict() }, unequal(), false, 24, 0, [2]int{total, 100 * total}, [2]int{0, 0}},
		{"go-back-N", nil, unequal(), false, 96, 18, [2]int{0, 0}, [2]int{24 + 2, 24 + 8}},
		{"selective", nil, unequal(), true, 96, 18, [2]int{0, 0}, [2]int{24 + 2, 24 + 8}},
		{"in order", nil, equal(1), false, 96, 9.9, [2]int{0, 0}, [2]int{0, 0}},
		{"selective, 1 % loss", nil, change(equal(1), func(k *link) { k.loss = 0.01 }), true, 24, 8.5, [2]int{50, 4 * total}, [2]int{24 + 1, 24 + 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoop(11, bth.MakePSN(0xffff00), total, c.links)
			mem, err := reorder.NewMemory(1024, 256)
			if err != nil {
				t.Fatal(err)
			}
			trk := reorder.Tracker(reorder.NewEunomia(mem))
			if c.trk != nil {
				trk = c.trk(mem)
			}
			eunomia(t, l, trk, 11, c.window, c.selective, 320) // IRN's RTO_high
			peak := 0
			l.check = func() { peak = max(peak, mem.Blocks()-mem.Free()) }
			if !l.run(5_000_000) {
				t.Fatalf("not done: %v", l.rec.Una())
			}
			t.Logf("%.1f Gb/s, %d again, %d refused, %d timeouts, %d blocks at most", l.gbps(), l.rtx, l.refused, l.timeouts, peak)
			if l.gbps() < c.gbps {
				t.Errorf("%.1f Gb/s, want %v", l.gbps(), c.gbps)
			}
			if l.rtx < c.again[0] || l.rtx > c.again[1] {
				t.Errorf("%d packets sent again, want %v", l.rtx, c.again)
			}
			if peak < c.peak[0] || peak > c.peak[1] {
				t.Errorf("%d blocks in use, want %v", peak, c.peak)
			}
			if mem.Free() != mem.Blocks() {
				t.Errorf("%d blocks are not given back", mem.Blocks()-mem.Free())
			}
		})
	}
}
