package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// Eunomia is the receiver of Mahmood et al., "Orderly Management of Packets in RDMA by Eunomia", sections 3.3 to 3.5.
// It has a hybrid-dynamic bitmap from the first out-of-order packet until all packets up to the last one of the
// connection have arrived. A connection in order holds only the address of its bitmap, which is NULL.
type Eunomia struct {
	mem      *Memory
	expected bth.PSN // the queue pair's expected sequence
	start    bth.PSN // the first PSN of the connection
	conn     int32   // number in the memory controller, for the address; or none
	tail     bool    // Announce: the next packet is the last one so far
	latest   latest
}

// none is the connection number of a tracker without a bitmap.
const none = -1

// NewEunomia returns a tracker that takes its memory from mem.
func NewEunomia(mem *Memory) *Eunomia { return &Eunomia{mem: mem, conn: none} }

// shareEunomia makes the memory of a NIC, by default that of the paper.
func shareEunomia(r *param.Reader) func(*param.Reader) Tracker {
	blocks := r.Int("memory_blocks", 1024, 1, maxBlocks)
	mem, err := NewMemory(blocks, r.Int("bitmap_cap_bits", 256, blockBits, maxCapBits))
	if err != nil {
		r.Fail(err)
	}
	return func(*param.Reader) Tracker { return NewEunomia(mem) }
}

// Reset implements Tracker. The connection ends or begins, and returns its memory.
func (e *Eunomia) Reset(psn bth.PSN) {
	if e.conn != none {
		e.mem.close(e.conn, e.load().dyn)
	}
	*e = Eunomia{mem: e.mem, expected: psn, start: psn, conn: none}
}

// Announce implements Agent. In the paper Head is the first expected PSN. Here both ends have agreed on it when
// they connected, so that a packet with another Head is a stale one, of an earlier connection.
func (e *Eunomia) Announce(head bth.PSN, tail bool) bool {
	e.tail = tail && head == e.start
	return head == e.start
}

// Classify implements Tracker.
func (e *Eunomia) Classify(psn bth.PSN) Verdict {
	d := psn.Diff(e.expected)
	switch {
	case d == 0:
		return InOrder
	case d < 0:
		return Duplicate
	case e.conn == none:
		if e.mem.room(none, 0, uint32(d)/blockBits+1) {
			return Held
		}
		return Beyond
	}
	b := e.load()
	row, bit := b.locate(psn)
	switch {
	case row < b.dyn && e.bit(row, bit):
		return Duplicate
	case e.mem.room(e.conn, b.dyn, row+1):
		return Held
	}
	return Beyond
}

// Commit implements Tracker.
func (e *Eunomia) Commit(psn bth.PSN, v Verdict) {
	switch v {
	case InOrder:
		e.advance()
	case Held:
		e.hold(psn)
	}
	e.latest = latest{psn, v}
	if !e.latest.refused() {
		e.collect(psn)
	}
	e.tail = false
}

// hold tracks psn. Classify has checked that there is room.
func (e *Eunomia) hold(psn bth.PSN) {
	if e.conn == none {
		e.create()
	}
	b := e.load()
	row, bit := b.locate(psn)
	for ; b.dyn <= row; b.dyn++ {
		e.mem.addRow(e.conn, b.dyn)
	}
	e.save(&b)
	*e.mem.row(e.conn, row) |= 1 << bit
}

// advance moves the head past the packet in order, and past the tracked packets behind it (3.3.4).
func (e *Eunomia) advance() {
	e.expected = e.expected.Next()
	if e.conn == none {
		return
	}
	b := e.load()
	for e.flush(&b); e.atHead(&b); e.flush(&b) {
	}
	e.expected = b.head
	if b.circ < b.dyn && e.empty(0, b.circ) {
		b.absorb()
	}
	e.save(&b)
}

// atHead reports whether the packet at the head is tracked.
func (e *Eunomia) atHead(b *bitmap) bool {
	row, bit := b.locate(b.head)
	return e.bit(row, bit)
}

// flush clears the entry at the head and moves the head.
func (e *Eunomia) flush(b *bitmap) {
	row, bit := b.locate(b.head)
	*e.mem.row(e.conn, row) &^= 1 << bit
	b.step()
}

// collect is the garbage collection (3.5.3). It returns the memory when all packets up to LastSeq have arrived in
// order, unless the sender has sent more since. In that case LastSeq follows the head, so that the two stay comparable
// however much the sender sends.
func (e *Eunomia) collect(end bth.PSN) {
	if e.conn == none {
		return
	}
	b := e.load()
	if e.tail && (!b.hasLast || end.After(b.last)) {
		b.last, b.hasLast = end, true
		e.save(&b)
	}
	switch {
	case !b.hasLast || !b.last.Before(b.head):
	case e.empty(0, b.dyn):
		e.mem.close(e.conn, b.dyn)
		e.conn = none
	case b.last.Next() != b.head:
		b.last = b.head.Add(-1)
		e.save(&b)
	}
}

// Expected implements Tracker.
func (e *Eunomia) Expected() bth.PSN { return e.expected }

// Feedback implements Tracker: an ACK of a packet in order, a SACK of a tracked one, and a NACK of one that could not
// be tracked (3.5.1).
func (e *Eunomia) Feedback(f *Feedback) {
	f.Expected = e.expected
	e.latest.sack(f)
}

// Footprint implements Tracker: the address (4 bytes) and, with a bitmap, the 16 bytes of table 1, the relative
// addresses of all rows but the first (2 each) and the rows: 4 to 82 bytes with a cap of 256 bits (table 2).
func (e *Eunomia) Footprint() int {
	const address = 4
	if e.conn == none {
		return address
	}
	return address + 16 + 2*int(e.mem.rows-1) + e.Bitmap()
}

// Bitmap implements Bitmapped: rows of 16 bits.
func (e *Eunomia) Bitmap() int {
	if e.conn == none {
		return 0
	}
	return 2 * int(e.load().dyn)
}
