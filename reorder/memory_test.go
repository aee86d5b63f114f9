package reorder

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// TestMemory compares the memory with the rules of section 4: a row takes the first free block from the head,
// metadata takes the last run of free blocks, and no block leaks.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.IntRange(1, 150).Draw(t, "blocks")
		mem, err := NewMemory(blocks, 64)
		if err != nil {
			t.Fatal(err)
		}
		const meta = 8 + 4
		used := make([]bool, blocks)
		rows := map[int32][]int{} // blocks of each connection
		starts := map[int32]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			conn := int32(rapid.IntRange(0, blocks/meta).Draw(t, "connection"))
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op == 0:
				want := lastRun(used, meta)
				got, ok := mem.open()
				if ok != (want >= 0) {
					t.Fatalf("open: %v, want a run at %d", ok, want)
				}
				if ok {
					if _, twice := starts[got]; twice || int(mem.starts[got]) != want {
						t.Fatalf("metadata at %d, want %d", mem.starts[got], want)
					}
					starts[got], rows[got] = want, nil
					mark(used, want, meta, true)
				}
			case starts[conn] == 0 && rows[conn] == nil && !has(starts, conn):
			case op == 1:
				mem.close(conn, uint32(len(rows[conn])))
				mark(used, starts[conn], meta, false)
				for _, at := range rows[conn] {
					used[at] = false
				}
				delete(starts, conn)
				delete(rows, conn)
			case len(rows[conn]) < 4:
				want := firstFree(used)
				n := uint32(len(rows[conn]))
				if ok := mem.addRow(conn, n); ok != (want >= 0) {
					t.Fatalf("row: %v, want block %d", ok, want)
				} else if ok {
					rows[conn] = append(rows[conn], want)
					used[want] = true
					*mem.row(conn, n) = uint16(want)
				}
			}
			checkMemory(t, mem, used, rows)
		}
	})
}

func has(m map[int32]int, k int32) bool { _, ok := m[k]; return ok }

func firstFree(used []bool) int {
	for i, u := range used {
		if !u {
			return i
		}
	}
	return -1
}

// lastRun returns the highest position of n free blocks in a row.
func lastRun(used []bool, n int) int {
	for at := len(used) - n; at >= 0; at-- {
		if firstFree(not(used[at:at+n])) < 0 {
			return at
		}
	}
	return -1
}

func not(in []bool) []bool {
	out := make([]bool, len(in))
	for i := range in {
		out[i] = !in[i]
	}
	return out
}

func mark(used []bool, at, n int, v bool) {
	for k := range n {
		used[at+k] = v
	}
}

// checkMemory checks block_alloc_bitmap and the addresses of rows.
func checkMemory(t *rapid.T, mem *Memory, used []bool, rows map[int32][]int) {
	free := 0
	for i, u := range used {
		if mem.isAllocated(i) != u {
			t.Fatalf("block %d in use: %v, want %v", i, !u, u)
		}
		if !u {
			free++
		}
	}
	if mem.Free() != free {
		t.Fatalf("%d blocks free, want %d", mem.Free(), free)
	}
	for conn, blocks := range rows {
		for n, at := range blocks {
			if int(mem.rowAt(conn, uint32(n))) != at || int(*mem.row(conn, uint32(n))) != at {
				t.Fatalf("row %d of connection %d is at %d, want %d", n, conn, mem.rowAt(conn, uint32(n)), at)
			}
		}
	}
}

func receive(e *Eunomia, psn bth.PSN) { e.Commit(psn, e.Classify(psn)) }

func TestMemoryLimits(t *testing.T) {
	for _, c := range []struct{ blocks, capBits int }{{0, 256}, {1 << 16, 256}, {1024, 0}, {1024, 100}, {1024, 4096}, {-1, -16}} {
		if _, err := NewMemory(c.blocks, c.capBits); err == nil {
			t.Errorf("%d blocks and %d bits are possible", c.blocks, c.capBits)
		}
	}
	mem, err := NewMemory(1024, 256)
	if err != nil {
		t.Fatal(err)
	}
	if n := mem.metadataBlocks(); n != 24 {
		t.Errorf("metadata of %d blocks, want 24", n)
	}
}

// TestEunomiaTable checks the bitmap of figures 5 and 6, with rows of 16 bits instead of 8: sizes and positions after
// each packet.
func TestEunomiaTable(t *testing.T) {
	mem, err := NewMemory(1024, 256)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEunomia(mem)
	e.Reset(bth.MakePSN(0))
	receive(e, bth.MakePSN(0))
	if e.conn != none {
		t.Fatal("a bitmap for a packet in order")
	}
	upTo := func(from, to, but uint32) (psns []uint32) {
		for p := from; p <= to; p++ {
			if p != but {
				psns = append(psns, p)
			}
		}
		return psns
	}
	for _, c := range []struct {
		what       string
		psns       []uint32
		head, tail uint32
		at         uint32 // position of the head
		circ, dyn  uint32
		set        [][2]uint32 // rows and their set bits
	}{
		{"circular", []uint32{6, 16}, 1, 16, 0, 1, 1, [][2]uint32{{0, 5}, {0, 15}}},
		{"a linear row", []uint32{19}, 1, 16, 0, 1, 2, [][2]uint32{{0, 5}, {0, 15}, {1, 2}}},
		{"in the linear row", []uint32{31}, 1, 16, 0, 1, 2, [][2]uint32{{0, 5}, {0, 15}, {1, 2}, {1, 14}}},
		{"head moves", upTo(1, 5, 0), 7, 16, 6, 1, 2, [][2]uint32{{0, 15}, {1, 2}, {1, 14}}},
		{"circular part flushed: absorbed", upTo(7, 15, 0), 17, 48, 16, 2, 2, [][2]uint32{{1, 2}, {1, 14}}},
		{"the ring wraps", []uint32{34, 48}, 17, 48, 16, 2, 2, [][2]uint32{{0, 1}, {0, 15}, {1, 2}, {1, 14}}},
		{"two rows more", []uint32{49 + 20}, 17, 48, 16, 2, 4, [][2]uint32{{0, 1}, {0, 15}, {1, 2}, {1, 14}, {3, 4}}},
		{"up to the end of the linear part", upTo(17, 48, 34), 49, 112, 32, 4, 4, [][2]uint32{{3, 4}}},
		{"head within the new ring", []uint32{49}, 50, 113, 33, 4, 4, [][2]uint32{{3, 4}}},
	} {
		for _, p := range c.psns {
			receive(e, bth.MakePSN(p))
		}
		b := e.load()
		if b.head != bth.MakePSN(c.head) || b.tail != bth.MakePSN(c.tail) || b.at != c.at || b.circ != c.circ || b.dyn != c.dyn {
			t.Errorf("%s: head %v, tail %v, at %d, circular %d, dynamic %d, want %+v", c.what, b.head, b.tail, b.at, b.circ, b.dyn, c)
		}
		on := 0
		for row := range b.dyn {
			for bit := range uint32(16) {
				if e.bit(row, bit) {
					on++
				}
			}
		}
		if on != len(c.set) {
			t.Errorf("%s: %d bits on, want %d", c.what, on, len(c.set))
		}
		for _, s := range c.set {
			if !e.bit(s[0], s[1]) {
				t.Errorf("%s: bit %d of row %d is off", c.what, s[1], s[0])
			}
		}
	}
}

// TestEunomiaAbsorbsEarly: the circular part has wrapped, tracks no packet, and its last packets are missing. These
// packets get new positions before the linear part.
func TestEunomiaAbsorbsEarly(t *testing.T) {
	mem, err := NewMemory(1024, 256)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEunomia(mem)
	e.Reset(bth.MakePSN(0))
	for _, p := range []uint32{2, 0, 1, 3, 4, 6, 25, 5} { // head 7 at 7, tail 20, 25 is linear
		receive(e, bth.MakePSN(p))
	}
	b := e.load()
	if b.head != bth.MakePSN(7) || b.circ != 2 || b.dyn != 2 || b.at != 2 || b.tail != bth.MakePSN(38) {
		t.Fatalf("head %v at %d, tail %v, circular %d of %d", b.head, b.at, b.tail, b.circ, b.dyn)
	}
	if v := e.Classify(bth.MakePSN(25)); v != Duplicate {
		t.Errorf("the packet of the linear part was lost: %d", v)
	}
}
