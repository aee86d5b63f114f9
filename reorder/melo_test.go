package reorder_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
	"roced.io/roced/reorder"
)

func bitsPool(tb interface{ Fatal(...any) }, bits int) *bitpool.Pool {
	p, err := bitpool.New(bits)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestMELOAccess: the tracker reaches only the front and the end of the bitmap, and drops packets for the middle
// (3.2.3).
func TestMELOAccess(t *testing.T) {
	p := bitsPool(t, 1024)
	trk := reorder.NewMELO(p, 1024)
	trk.Reset(psn(0xfffff0))
	play(t, trk, []arrival{
		{0xfffff0, reorder.InOrder, 1}, // no bitmap
		{0xfffff4, reorder.Held, 0},
		{0xfffff4, reorder.Duplicate, 0},
		{20, reorder.Held, 0},
		{20, reorder.Duplicate, 0},
		{4, reorder.Beyond, 0},        // middle
		{0xffffff, reorder.Beyond, 0}, // middle
		{0xfffff2, reorder.Held, 0},   // front
		{18, reorder.Held, 0},         // end
		{0xfffff1 + 1024, reorder.Beyond, 0},
		{0xfffff1, reorder.InOrder, 2},
		{0xfffff3, reorder.InOrder, 2},
		{0xfffff5, reorder.InOrder, 1},
		{0xfffff4, reorder.Duplicate, 0},
	})
	if held := p.Blocks() - p.Free(); held != 5 {
		t.Errorf("%d blocks for 0xfffff6 to 20", held)
	}
	trk.Reset(psn(5))
	if p.Free() != p.Blocks() || trk.Classify(psn(20)) != reorder.Held {
		t.Error("a reset gives all blocks back")
	}
}

// TestMELOHoles: each new hole triggers a NACK with the most recent three holes, closest to RCV.HIGH (3.2.4).
func TestMELOHoles(t *testing.T) {
	trk := reorder.NewMELO(bitsPool(t, 1024), 1024)
	trk.Reset(psn(0xfffffe))
	hole := func(start, n uint32) bth.Hole { return bth.Hole{Start: psn(start), Len: n} }
	for i, c := range []struct {
		psn      uint32
		expected uint32
		nack     bool // otherwise a SACK, or nothing if in order
		holes    []bth.Hole
	}{
		{0xfffffe, 0xffffff, false, nil},
		{1, 0xffffff, true, []bth.Hole{hole(0xffffff, 2)}},
		{2, 0xffffff, false, nil},
		{6, 0xffffff, true, []bth.Hole{hole(3, 3), hole(0xffffff, 2)}},
		{4, 0xffffff, false, nil}, // splits a hole: the front is 0xffffff, the end 6
		{8, 0xffffff, true, []bth.Hole{hole(7, 1), hole(5, 1), hole(3, 1)}},
		{10, 0xffffff, true, []bth.Hole{hole(9, 1), hole(7, 1), hole(5, 1)}},
		{0xffffff, 0, false, nil},
		{5, 0, false, nil},
		{12, 0, true, []bth.Hole{hole(11, 1), hole(9, 1), hole(7, 1)}},
		{0, 3, false, nil},
		{3, 7, false, nil},
		{7, 9, false, nil},
		{15, 9, true, []bth.Hole{hole(13, 2), hole(11, 1), hole(9, 1)}},
		{13, 9, false, nil},
		{20, 9, true, []bth.Hole{hole(16, 4), hole(14, 1), hole(11, 1)}},
	} {
		v, _ := receive(trk, psn(c.psn))
		want := reorder.Feedback{Expected: psn(c.expected), Gap: c.nack, NumHoles: uint8(len(c.holes))}
		if v == reorder.Held {
			want.HasSACK, want.SACK = true, psn(c.psn)
		}
		copy(want.Holes[:], c.holes)
		if f := said(trk); f != want {
			t.Errorf("%d: %v: %+v, want %+v", i, c.psn, f, want)
		}
	}
}

// TestMELOExhaustion: the tracker drops packets when the pool has no free blocks (3.2.5). Two connections share the
// pool.
func TestMELOExhaustion(t *testing.T) {
	p := bitsPool(t, 24)
	a, b := reorder.NewMELO(p, 64), reorder.NewMELO(p, 64)
	a.Reset(psn(0))
	b.Reset(psn(1000))
	play(t, a, []arrival{{15, reorder.Held, 0}})
	play(t, b, []arrival{
		{1008, reorder.Beyond, 0}, // two blocks
		{1001, reorder.Held, 0},
	})
	if f := said(b); f.Refused || !f.HasSACK {
		t.Errorf("%+v", f)
	}
	play(t, a, []arrival{{16, reorder.Beyond, 0}})
	if f := said(a); f != (reorder.Feedback{Expected: psn(0), HasSACK: true, SACK: psn(16), Refused: true}) {
		t.Errorf("dropped: %+v", f)
	}
	play(t, b, []arrival{{1000, reorder.InOrder, 2}})
	play(t, a, []arrival{{16, reorder.Held, 0}})
}

// TestMELOSwap: an exhausted pool swaps out an idle connection that holds blocks. Idle means that a thousand packets
// arrived for other connections since its last one. It gets blocks again when it needs them (3.2.5), and remembers
// the received packets.
func TestMELOSwap(t *testing.T) {
	p := bitsPool(t, 24)
	a, b := reorder.NewMELO(p, 60), reorder.NewMELO(p, 60)
	a.Reset(psn(0))
	b.Reset(psn(0))
	play(t, a, []arrival{{3, reorder.Held, 0}, {9, reorder.Held, 0}, {23, reorder.Held, 0}})
	for i := range 1024 {
		if v := b.Classify(psn(15)); v != reorder.Beyond || a.Footprint() == 20 {
			t.Fatalf("%d: verdict %d, %d bytes", i, v, a.Footprint())
		}
	}
	play(t, b, []arrival{{15, reorder.Held, 0}})
	if p.Free() != 1 || a.Footprint() != 20 {
		t.Errorf("%d free, footprint %d", p.Free(), a.Footprint())
	}
	// While b holds the blocks, a continues in order.
	play(t, a, []arrival{
		{23, reorder.Beyond, 0},
		{0, reorder.InOrder, 1},
		{1, reorder.InOrder, 1},
		{2, reorder.InOrder, 2},
	})
	b.Reset(psn(0))
	play(t, a, []arrival{
		{23, reorder.Duplicate, 0},
		{4, reorder.InOrder, 1},
		{25, reorder.Beyond, 0},
	})
	if p.Free() != 0 {
		t.Errorf("%d blocks are free", p.Free())
	}
	for i := uint32(5); i < 23; i++ {
		receive(a, psn(i))
	}
	if a.Expected() != psn(24) || p.Free() != 3 {
		t.Errorf("expected %v, %d blocks free", a.Expected(), p.Free())
	}
}

// TestMELOFootprint computes the paper's average for 300 connections, 23 bytes in all (3.2.4). These are 12 bytes for
// holes, 6 for RCV.NXT and RCV.HIGH, 2 for the pointers, and a share of the pools. The pools of receiver and sender
// have 6 Kb.
func TestMELOFootprint(t *testing.T) {
	const connections = 300
	receiver, sender := bitsPool(t, 1024), bitsPool(t, 1024)
	sum := receiver.Footprint() + sender.Footprint()
	if sum != 6*1024/8 {
		t.Errorf("the pools have %d bytes", sum)
	}
	trk := make([]*reorder.MELO, connections)
	for i := range trk {
		trk[i] = reorder.NewMELO(receiver, 1024)
		trk[i].Reset(psn(0))
		sum += trk[i].Footprint() // in order: no blocks
	}
	if average := float64(sum) / connections; average > 23 || average < 22 {
		t.Errorf("%.2f bytes per connection", average)
	}
	receive(trk[0], psn(9))
	if n := trk[0].Footprint(); n != 20+2*3 {
		t.Errorf("%d bytes with two blocks", n)
	}
}

// TestMELOModel compares two connections that share a pool with maps.
func TestMELOModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := bitsPool(t, 8*rapid.IntRange(1, 40).Draw(t, "blocks"))
		buffer := rapid.IntRange(1, 300).Draw(t, "buffer")
		var conns [2]*meloConn
		for i := range conns {
			conns[i] = &meloConn{trk: reorder.NewMELO(p, buffer), first: rapid.Uint32Range(0, 1<<24-1).Draw(t, "first"),
				m: model{accepted: map[int]bool{}}, high: -1}
			conns[i].trk.Reset(psn(conns[i].first))
		}
		for range rapid.IntRange(0, 300).Draw(t, "packets") {
			c := conns[rapid.IntRange(0, 1).Draw(t, "connection")]
			n := c.m.next + rapid.SampledFrom([]int{0, 0, 1, rapid.IntRange(-3, buffer+2).Draw(t, "ahead")}).Draw(t, "packet")
			c.receive(t, p, n, buffer)
			if held := conns[0].blocks() + conns[1].blocks(); held+p.Free() != p.Blocks() {
				t.Fatalf("%d blocks held and %d free of %d", held, p.Free(), p.Blocks())
			}
		}
	})
}

// meloConn is a connection and its model.
type meloConn struct {
	trk   *reorder.MELO
	first uint32
	m     model
	high  int
}

func (c *meloConn) block(n int) int { return (int(c.first) + n) / 8 }

func (c *meloConn) blocks() int {
	if c.high < c.m.next {
		return 0
	}
	return c.block(c.high) - c.block(c.m.next) + 1
}

// verdict returns the model's verdict on packet n.
func (c *meloConn) verdict(p *bitpool.Pool, n, buffer int) reorder.Verdict {
	_, has := c.m.accepted[n]
	switch {
	case n < c.m.next:
		return reorder.Duplicate
	case n == c.m.next:
		return reorder.InOrder
	case n >= c.m.next+buffer:
		return reorder.Beyond
	case n > c.high && c.block(n)-c.block(c.m.next)+1-c.blocks() > p.Free():
		return reorder.Beyond
	case n > c.high:
		return reorder.Held
	case c.block(n) != c.block(c.m.next) && c.block(n) != c.block(c.high):
		return reorder.Beyond
	case has:
		return reorder.Duplicate
	}
	return reorder.Held
}

// holes returns the model's holes, the most recent first.
func (c *meloConn) holes() (out []bth.Hole) {
	for n := c.high; n >= c.m.next; n-- {
		if _, ok := c.m.accepted[n]; ok {
			continue
		}
		at := psn(c.first + uint32(n))
		if k := len(out); k > 0 && out[k-1].Start == at.Next() {
			out[k-1] = bth.Hole{Start: at, Len: out[k-1].Len + 1}
		} else {
			out = append(out, bth.Hole{Start: at, Len: 1})
		}
	}
	return out
}

func (c *meloConn) receive(t *rapid.T, p *bitpool.Pool, n, buffer int) {
	want, at, gap := c.verdict(p, n, buffer), psn(c.first+uint32(n)), n > max(c.high, c.m.next-1)+1
	if v := c.trk.Classify(at); v != want {
		t.Fatalf("%d: classified %d, want %d", n, v, want)
	}
	var advanced uint32
	if want == reorder.InOrder || want == reorder.Held {
		c.high = max(c.high, n)
		advanced = c.m.receive(n)
	}
	v, got := receive(c.trk, at)
	if v != want || got != advanced {
		t.Fatalf("%d: %d, %d, want %d, %d", n, v, got, want, advanced)
	}
	f := said(c.trk)
	if f.Expected != psn(c.first+uint32(c.m.next)) || f.Gap != (v == reorder.Held && gap) || f.Refused != (v == reorder.Beyond) {
		t.Fatalf("%d: %+v", n, f)
	}
	// A NACK reports a subset of the existing holes, the most recent one first. Forgotten holes do not return.
	all := c.holes()
	for i, h := range f.Holes[:f.NumHoles] {
		if !slices.Contains(all, h) || i == 0 && h != all[0] {
			t.Fatalf("%d: holes %v, there are %v", n, f.Holes, all)
		}
	}
	if f.Gap && f.NumHoles == 0 {
		t.Fatalf("%d: a NACK without holes", n)
	}
}

// TestMELODropped: a packet dropped for lack of blocks does not count as received, even if swapping out idle
// connections frees blocks later.
func TestMELODropped(t *testing.T) {
	pool := bitsPool(t, 64)
	idle, trk := reorder.NewMELO(pool, 256), reorder.NewMELO(pool, 256)
	idle.Reset(psn(0))
	trk.Reset(psn(0))
	for i := 1; idle.Classify(psn(uint32(i))) == reorder.Held; i++ { // takes all blocks
		idle.Commit(psn(uint32(i)), reorder.Held)
	}
	verdict, dropped := reorder.Beyond, 0
	for ; verdict == reorder.Beyond; dropped++ {
		verdict = trk.Classify(psn(1))
		trk.Commit(psn(1), verdict)
		if f := said(trk); f.Refused != (verdict == reorder.Beyond) || !f.HasSACK {
			t.Fatalf("after %d: verdict %d, feedback %+v", dropped, verdict, f)
		}
	}
	if dropped < 100 || verdict != reorder.Held {
		t.Errorf("%v after %d were dropped", verdict, dropped)
	}
}
