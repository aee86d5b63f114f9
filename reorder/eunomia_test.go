package reorder_test

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/reorder"
)

func newMemory(tb interface{ Fatal(...any) }, blocks, capBits int) *reorder.Memory {
	mem, err := reorder.NewMemory(blocks, capBits)
	if err != nil {
		tb.Fatal(err)
	}
	return mem
}

// TestEunomiaOrder: completions wait until the gap is filled, the tracker adds rows up to the cap, and the connection
// frees all blocks when it ends.
func TestEunomiaOrder(t *testing.T) {
	mem := newMemory(t, 1024, 256)
	trk := reorder.NewEunomia(mem)
	trk.Reset(psn(0xfffffe))
	play(t, trk, []arrival{
		{0xfffffe, reorder.InOrder, 1},
		{0xfffffe, reorder.Duplicate, 0},
	})
	if trk.Footprint() != 4 || trk.Bitmap() != 0 || mem.Free() != 1024 {
		t.Fatalf("in order: %d bytes, %d blocks", trk.Footprint(), 1024-mem.Free())
	}
	play(t, trk, []arrival{
		{1, reorder.Held, 0},
		{1, reorder.Duplicate, 0},
		{0, reorder.Held, 0},
	})
	if trk.Footprint() != 52 || trk.Bitmap() != 2 || mem.Free() != 1024-24-1 {
		t.Fatalf("one row: %d bytes, %d of bits, %d blocks", trk.Footprint(), trk.Bitmap(), 1024-mem.Free())
	}
	play(t, trk, []arrival{
		{0xffffff + 255, reorder.Held, 0},
		{0xffffff + 256, reorder.Beyond, 0},
	})
	if trk.Footprint() != 82 || trk.Bitmap() != 32 || mem.Free() != 1024-24-16 {
		t.Fatalf("at the cap: %d bytes, %d of bits, %d blocks", trk.Footprint(), trk.Bitmap(), 1024-mem.Free())
	}
	play(t, trk, []arrival{{0xffffff, reorder.InOrder, 3}})
	for p := uint32(2); p < 254; p++ {
		if v, n := receive(trk, psn(p)); v != reorder.InOrder || n != 1+p/253 {
			t.Fatalf("%d: %d, %d", p, v, n)
		}
	}
	if trk.Expected() != psn(255) {
		t.Fatalf("expected %v", trk.Expected())
	}
	// The bitmap stays until the last packet of the connection.
	if mem.Free() != 1024-24-16 {
		t.Fatalf("%d blocks", 1024-mem.Free())
	}
	trk.Announce(psn(0xfffffe), true)
	receive(trk, psn(255))
	if trk.Footprint() != 4 || mem.Free() != 1024 {
		t.Fatalf("after the last packet: %d bytes, %d blocks", trk.Footprint(), 1024-mem.Free())
	}
}

// TestEunomiaFeedback: ACK, SACK, NACK (3.5.1).
func TestEunomiaFeedback(t *testing.T) {
	trk := reorder.NewEunomia(newMemory(t, 24+2, 256))
	trk.Reset(psn(100))
	for _, c := range []struct {
		what string
		psn  uint32
		want reorder.Feedback
	}{
		{"in order", 100, reorder.Feedback{Expected: psn(101)}},
		{"ahead", 103, reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(103)}},
		{"again", 103, reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(103)}},
		{"second row", 132, reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(132)}},
		{"no memory", 133, reorder.Feedback{Expected: psn(101), HasSACK: true, SACK: psn(133), Refused: true}},
		{"duplicate", 99, reorder.Feedback{Expected: psn(101)}},
		{"gap filled", 101, reorder.Feedback{Expected: psn(102)}},
	} {
		receive(trk, psn(c.psn))
		if f := said(trk); f != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, f, c.want)
		}
	}
	trk.Commit(psn(110), reorder.Refused)
	if f := said(trk); !f.Refused || f.SACK != psn(110) {
		t.Errorf("refused: %+v", f)
	}
}

// TestEunomiaLast: garbage collection waits for LastSeq and for packets that the sender sent later (3.5.3).
func TestEunomiaLast(t *testing.T) {
	mem := newMemory(t, 1024, 256)
	trk := reorder.NewEunomia(mem)
	for i, c := range []struct {
		psns   []uint32 // in order of arrival
		last   uint32   // is the last packet of the connection
		bitmap bool     // a bitmap is left at the end
	}{
		{[]uint32{0, 1, 2}, 2, false},
		{[]uint32{1, 0, 2}, 2, false},
		{[]uint32{2, 1, 0}, 2, false},
		{[]uint32{2, 0, 1}, 2, false},
		{[]uint32{2, 0}, 2, true},
		{[]uint32{1, 0, 2}, 9, true},
		{[]uint32{2, 4, 0, 1}, 2, true}, // 4 arrived in between
		{[]uint32{2, 4, 0, 1, 3}, 2, false},
		{[]uint32{1, 1, 0}, 1, false},
	} {
		trk.Reset(psn(0))
		for _, p := range c.psns {
			if !trk.Announce(psn(0), p == c.last) {
				t.Fatalf("%d: %d is of another connection", i, p)
			}
			receive(trk, psn(p))
		}
		if bitmap := mem.Free() != mem.Blocks(); bitmap != c.bitmap || bitmap != (trk.Footprint() > 4) {
			t.Errorf("%d: a bitmap of %d blocks, %d bytes", i, mem.Blocks()-mem.Free(), trk.Footprint())
		}
	}
	trk.Reset(psn(0))
	if mem.Free() != mem.Blocks() {
		t.Error("Reset does not give the memory back")
	}
	if trk.Announce(psn(1), true) {
		t.Error("the Head of another connection is accepted")
	}
	receive(trk, psn(1))
	receive(trk, psn(0))
	if mem.Free() == mem.Blocks() {
		t.Error("the last packet of another connection counts")
	}
}

// dims is the size of a hybrid-dynamic bitmap, computed from the rules of section 3.3 alone. It ignores the positions
// of bits.
type dims struct {
	model
	bitmap          bool
	tail, circ, dyn int
	last            int // LastSeq, or unknown
}

// unknown is LastSeq before its arrival.
const unknown = -1 << 30

// rows returns the number of rows that packet n needs.
func (d *dims) rows(n int) int {
	switch {
	case !d.bitmap:
		return (n-d.next)/16 + 1
	case n <= d.tail:
		return d.dyn
	}
	return max(d.dyn, d.circ+(n-d.tail-1)/16+1)
}

// hold allocates the bitmap and its rows for packet n.
func (d *dims) hold(n int) {
	if !d.bitmap {
		d.bitmap, d.tail, d.circ, d.dyn, d.last = true, d.next+15, 1, 1, unknown
	}
	d.dyn = d.rows(n)
}

// moved advances the head.
func (d *dims) moved(by int) {
	if !d.bitmap {
		return
	}
	switch {
	case d.circ == d.dyn:
		d.tail += by
	case d.next > d.tail || d.empty(d.next, d.tail):
		d.circ, d.tail = d.dyn, d.next+16*d.dyn-1
	}
}

// empty reports whether no packet of the range has been accepted.
func (d *dims) empty(from, to int) bool {
	for ; from <= to; from++ {
		if !d.free(from) {
			return false
		}
	}
	return true
}

// collect frees the bitmap.
func (d *dims) collect(n int, last bool) {
	if !d.bitmap {
		return
	}
	if last {
		d.last = max(d.last, n)
	}
	for k := range d.accepted {
		if k >= d.next {
			return
		}
	}
	d.bitmap = d.last == unknown || d.last >= d.next
}

// TestEunomiaModel compares several connections that share a memory, large or scarce, with the model.
func TestEunomiaModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capRows := rapid.IntRange(1, 16).Draw(t, "rows")
		blocks := rapid.SampledFrom([]int{1024, 80, 40, 8}).Draw(t, "blocks")
		mem := newMemory(t, blocks, 16*capRows)
		first := rapid.Uint32Range(0, 1<<24-1).Draw(t, "first")
		trks, models := make([]*reorder.Eunomia, 3), make([]dims, 3)
		for i := range trks {
			trks[i] = reorder.NewEunomia(mem)
			trks[i].Reset(psn(first))
			models[i] = dims{model: model{accepted: map[int]bool{}}}
		}
		for range rapid.IntRange(0, 400).Draw(t, "packets") {
			i := rapid.IntRange(0, 2).Draw(t, "connection")
			ahead := rapid.SampledFrom([]int{0, 1, 3, 20, 16 * capRows}).Draw(t, "reordering")
			n := models[i].next + rapid.IntRange(-min(2, ahead), ahead).Draw(t, "ahead")
			checkEunomia(t, mem, trks[i], &models[i], first, n, capRows)
			used := 0
			for k := range models {
				if models[k].bitmap {
					used += 8 + capRows + models[k].dyn
				}
			}
			if mem.Blocks()-mem.Free() != used {
				t.Fatalf("%d blocks in use, want %d", mem.Blocks()-mem.Free(), used)
			}
		}
		for i := range trks {
			trks[i].Reset(psn(0))
		}
		if mem.Free() != mem.Blocks() {
			t.Fatalf("%d blocks lost", mem.Blocks()-mem.Free())
		}
	})
}

// checkEunomia delivers packet n to the tracker and the model, and compares them.
func checkEunomia(t *rapid.T, mem *reorder.Memory, trk *reorder.Eunomia, m *dims, first uint32, n, capRows int) {
	isLast := rapid.IntRange(0, 5).Draw(t, "last") == 0
	p := psn(first + uint32(n))
	trk.Announce(psn(first), isLast)
	before, free := trk.Classify(p), mem.Free()
	v, advanced := receive(trk, p)
	if v != before {
		t.Fatalf("%d: classified %d, received %d", n, before, v)
	}
	var wantAdvanced uint32
	switch {
	case n == m.next:
		wantAdvanced = m.receive(n)
		m.moved(int(wantAdvanced))
		if v != reorder.InOrder {
			t.Fatalf("%d: %d, want in order", n, v)
		}
	case !m.free(n):
		if v != reorder.Duplicate {
			t.Fatalf("%d: %d, want duplicate", n, v)
		}
	case v == reorder.Held:
		if m.rows(n) > capRows {
			t.Fatalf("%d: held beyond the cap", n)
		}
		m.hold(n)
		m.receive(n)
	default:
		need := m.rows(n)
		if m.bitmap {
			need -= m.dyn
		}
		scarce := need > free || !m.bitmap && mem.Blocks() < 1024
		if v != reorder.Beyond || m.rows(n) <= capRows && !scarce {
			t.Fatalf("%d: %d, but %d rows of %d are enough, and %d blocks are free", n, v, m.rows(n), capRows, free)
		}
	}
	if v != reorder.Beyond {
		m.collect(n, isLast)
	}
	want := 4
	if m.bitmap {
		want = 4 + 16 + 2*(capRows-1) + 2*m.dyn
	}
	if advanced != wantAdvanced || trk.Footprint() != want || trk.Expected() != psn(first+uint32(m.next)) {
		t.Fatalf("%d: advanced %d, %d bytes, expected %v; want %d, %d", n, advanced, trk.Footprint(), trk.Expected(), wantAdvanced, want)
	}
}

// TestEunomiaManyConnections: connections in order use no memory, and connections without memory continue in order
// (3.4).
func TestEunomiaManyConnections(t *testing.T) {
	mem := newMemory(t, 1024, 256)
	trks := make([]*reorder.Eunomia, 1000)
	for i := range trks {
		trks[i] = reorder.NewEunomia(mem)
		trks[i].Reset(psn(0))
		receive(trks[i], psn(0))
	}
	if mem.Free() != 1024 {
		t.Fatalf("%d blocks for connections in order", 1024-mem.Free())
	}
	held := 0
	for _, trk := range trks {
		if v, _ := receive(trk, psn(2)); v == reorder.Held {
			held++
		}
	}
	if held != 1024/25 {
		t.Errorf("%d connections have a bitmap of 25 blocks", held)
	}
	for i, trk := range trks {
		if v, _ := receive(trk, psn(1)); v != reorder.InOrder {
			t.Fatalf("connection %d: %d", i, v)
		}
	}
}

func TestSharedFactories(t *testing.T) {
	mem := newMemory(t, 1024, 256)
	said := new(reorder.Feedback)
	for _, name := range []string{"mp-rdma", "eunomia", "eunomia, shared"} {
		trk := reorder.Tracker(reorder.NewEunomia(mem))
		if name != "eunomia, shared" {
			var err error
			if trk, err = reorder.New(name, nil); err != nil {
				t.Fatal(err)
			}
		}
		trk.Reset(psn(0))
		p, keep := psn(0), any(trk)
		agent, _ := keep.(reorder.Agent)
		if n := testing.AllocsPerRun(1000, func() {
			for _, k := range []int{3, 1, 40, 0, 2, 3, 90} {
				q := p.Add(k)
				if agent != nil {
					agent.Announce(psn(0), k == 90)
				}
				receive(trk, q)
				trk.Feedback(said)
				trk.Footprint()
			}
			p = trk.Expected()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for name, p := range map[string]reorder.Params{
		"mp-rdma": {"bitmap_slots": 0}, "eunomia": {"bitmap_cap_bits": 100},
	} {
		if _, err := reorder.New(name, p); err == nil {
			t.Errorf("%s with %v is possible", name, p)
		}
	}
	for _, p := range []reorder.Params{{"memory_blocks": 0}, {"bitmap_cap_bits": 1 << 20}} {
		if _, err := reorder.New("eunomia", p); err == nil {
			t.Errorf("eunomia with %v is possible", p)
		}
	}
}

// TestEunomiaFullBitmap: a full linear part is flushed to its end.
func TestEunomiaFullBitmap(t *testing.T) {
	mem := newMemory(t, 10+2, 32) // exactly the blocks of the bitmap
	trk := reorder.NewEunomia(mem)
	for first := uint32(0); first < 200; first += 50 {
		trk.Reset(psn(first))
		for p := uint32(31); p > 0; p-- {
			if v, _ := receive(trk, psn(first+p)); v != reorder.Held {
				t.Fatalf("%d: %d", p, v)
			}
		}
		if v, n := receive(trk, psn(first)); v != reorder.InOrder || n != 32 {
			t.Fatalf("%d, %d", v, n)
		}
	}
}

// TestEunomiaGivesBack: the tracker frees the blocks of a packet that it cannot track, and all blocks of a closed
// connection.
func TestEunomiaGivesBack(t *testing.T) {
	mem := newMemory(t, 1024, 32)
	trk := reorder.NewEunomia(mem)
	trk.Reset(psn(0))
	if v, _ := receive(trk, psn(32)); v != reorder.Beyond || mem.Free() != 1024 {
		t.Errorf("%d, %d blocks", v, 1024-mem.Free())
	}
	receive(trk, psn(1))
	trk.Reset(psn(0))
	receive(trk, psn(1))
	receive(trk, psn(0))
	if trk.Expected() != psn(2) {
		t.Errorf("expected %v after the reset", trk.Expected())
	}
}
