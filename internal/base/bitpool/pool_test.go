package bitpool_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/bitpool"
)

func psn(v uint32) bth.PSN { return bth.MakePSN(v) }

func newPool(tb interface{ Fatal(...any) }, bits int) *bitpool.Pool {
	p, err := bitpool.New(bits)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// TestPoolSize: "to maintain a 1024b bits pool, MELO requires 1024b more data for next_ptr
// and another 1024b for the available array" (3.2.3).
func TestPoolSize(t *testing.T) {
	for _, c := range []struct{ bits, blocks, bytes int }{
		{8, 1, 3}, {1024, 128, 3 * 1024 / 8}, {2048, 256, 768}, {2056, 257, 257 * 5}, {bitpool.MaxBits, 1 << 16, 5 << 16},
	} {
		p := newPool(t, c.bits)
		if p.Blocks() != c.blocks || p.Free() != c.blocks || p.Footprint() != c.bytes {
			t.Errorf("%d bits: %d blocks, %d free, %d bytes, want %d and %d", c.bits, p.Blocks(), p.Free(), p.Footprint(), c.blocks, c.bytes)
		}
	}
	for _, bits := range []int{-8, 0, 7, 12, bitpool.MaxBits + 8} {
		if _, err := bitpool.New(bits); err == nil {
			t.Errorf("%d bits are accepted", bits)
		}
	}
}

// TestListEnds checks the reachable PSNs, across their wrap.
func TestListEnds(t *testing.T) {
	p := newPool(t, 1024)
	l := bitpool.MakeList(p)
	l.Reset(psn(0xfffffd))
	if !l.Empty() || l.Blocks() != 0 || l.High() != psn(0xfffffc) {
		t.Fatalf("not empty: %d blocks, high %v", l.Blocks(), l.High())
	}
	if !l.Extend(psn(17)) || l.Blocks() != 4 || p.Free() != 124 || l.High() != psn(17) {
		t.Fatalf("%d blocks, %d free, high %v", l.Blocks(), p.Free(), l.High())
	}
	for _, c := range []struct {
		psn     uint32
		set, ok bool
	}{
		{0xfffffd, false, true}, {0xffffff, false, true}, // front
		{0, false, false}, {7, false, false}, {8, false, false}, {15, false, false}, // middle
		{16, false, true}, {17, true, true}, // end
	} {
		if set, ok := l.Reach(psn(c.psn)); set != c.set || ok != c.ok {
			t.Errorf("%d: set %v, reached %v, want %v, %v", c.psn, set, ok, c.set, c.ok)
		}
	}
	l.Set(psn(0xffffff))
	l.Set(psn(8)) // out of reach
	for range 3 {
		l.Pop()
	}
	if l.Blocks() != 3 || p.Free() != 125 {
		t.Errorf("%d blocks, %d free: the first has been left", l.Blocks(), p.Free())
	}
	if set, ok := l.Reach(psn(0)); set || !ok {
		t.Error("the second block is the first now")
	}
	for !l.Empty() {
		l.Pop()
	}
	if l.Front() != psn(18) || l.Blocks() != 0 || p.Free() != p.Blocks() {
		t.Errorf("front %v, %d blocks, %d free", l.Front(), l.Blocks(), p.Free())
	}
}

// TestListExhaustion: an allocation gets all blocks or none.
func TestListExhaustion(t *testing.T) {
	p := newPool(t, 32)
	a, b := bitpool.MakeList(p), bitpool.MakeList(p)
	a.Reset(psn(0))
	b.Reset(psn(100))
	if !a.Extend(psn(17)) || a.Extend(psn(40)) || a.High() != psn(17) || p.Free() != 1 {
		t.Fatalf("high %v, %d free", a.High(), p.Free())
	}
	if b.CanExtend(psn(104)) || !b.CanExtend(psn(103)) || b.Extend(psn(104)) || !b.Empty() || !b.Extend(psn(103)) || p.Free() != 0 {
		t.Fatalf("second list: %d blocks, %d free", b.Blocks(), p.Free())
	}
	if !a.Extend(psn(23)) || a.Extend(psn(24)) {
		t.Error("the last block has room up to 23")
	}
	b.Reset(psn(7))
	if p.Free() != 1 || !a.Extend(psn(24)) {
		t.Errorf("%d free after a reset", p.Free())
	}
}

// TestLists compares several lists that share a pool with maps, and iterates over them with cursors. Blocks are
// conserved, and none is in two lists.
func TestLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPool(t, 8*rapid.IntRange(1, 40).Draw(t, "blocks"))
		type conn struct {
			list   bitpool.List
			cursor bitpool.Cursor
			set    map[bth.PSN]bool
		}
		conns := make([]*conn, 3)
		for i := range conns {
			c := &conn{list: bitpool.MakeList(p), set: map[bth.PSN]bool{}}
			c.list.Reset(psn(rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")))
			c.cursor.Rewind(&c.list)
			conns[i] = c
		}
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			c := conns[rapid.IntRange(0, 2).Draw(t, "connection")]
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				to := c.list.High().Add(rapid.IntRange(1, 60).Draw(t, "ahead"))
				if can := c.list.CanExtend(to); can != c.list.Extend(to) {
					t.Fatal("CanExtend lies")
				} else if can {
					c.set[to] = true
				}
			case 2:
				for n := rapid.IntRange(1, 30).Draw(t, "pops"); n > 0 && !c.list.Empty(); n-- {
					if c.cursor.PSN() == c.list.Front() {
						c.cursor.Step()
					}
					c.list.Pop()
				}
				if c.list.Empty() {
					c.cursor.Rewind(&c.list)
				}
			case 3:
				at := c.list.Front().Add(rapid.IntRange(0, 70).Draw(t, "at"))
				if !c.list.Empty() && !at.After(c.list.High()) {
					if _, ok := c.list.Reach(at); ok {
						c.list.Set(at)
						c.set[at] = true
					}
				}
			case 4:
				hole := c.cursor.PSN()
				for hole != c.list.High().Next() && c.set[hole] {
					hole = hole.Next()
				}
				if found := c.cursor.Seek(&c.list); found != (hole != c.list.High().Next()) || c.cursor.PSN() != hole {
					t.Fatalf("found %v at %v, want %v", found, c.cursor.PSN(), hole)
				} else if found {
					c.cursor.Step()
				}
			}
			held := 0
			for i, c := range conns {
				held += c.list.Blocks()
				for at := c.list.Front(); at != c.list.High().Next(); at = at.Next() {
					if set, ok := c.list.Reach(at); ok && set != c.set[at] {
						t.Fatalf("list %d: %v is %v", i, at, set)
					}
				}
			}
			if held+p.Free() != p.Blocks() {
				t.Fatalf("%d blocks held and %d free of %d", held, p.Free(), p.Blocks())
			}
		}
	})
}
