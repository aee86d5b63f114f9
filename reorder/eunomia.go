package reorder

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/param"
)

// Eunomia is the receiver of Mahmood et al., "Orderly Management of Packets in RDMA
// by Eunomia", sections 3.3 to 3.5: a hybrid-dynamic bitmap that exists only from the
// first packet out of order until everything up to the last one of the connection
// has arrived. A connection in order has nothing but its address, which is NULL.
//
// Before Receive comes Announce, with what the sender's agent has added to the
// packet.
type Eunomia struct {
	mem      *Memory
	expected bth.PSN // the queue pair's expected sequence
	start    bth.PSN // the first PSN of the connection
	conn     int32   // of the memory controller, stands for the address; none
	tail     bool    // announced: the next packet is the last one so far
	released released

	heard   bool
	psn     bth.PSN
	refused bool
}

// none is the connection of a tracker that has no bitmap.
const none = -1

// NewEunomia returns a tracker that takes its memory from mem.
func NewEunomia(mem *Memory) *Eunomia {
	return &Eunomia{mem: mem, conn: none}
}

// newEunomia gives the tracker a memory of its own.
func newEunomia(p Params) (Tracker, error) {
	r := param.NewReader("reorder: eunomia", p)
	blocks := r.Int("memory_blocks", 1024, 1, maxBlocks)
	capBits := r.Int("bitmap_cap_bits", 256, blockBits, maxCapBits)
	if err := r.Err(); err != nil {
		return nil, err
	}
	mem, err := NewMemory(blocks, capBits)
	if err != nil {
		return nil, err
	}
	return NewEunomia(mem), nil
}

// Factory makes trackers that share the memory: those of one NIC.
func (m *Memory) Factory(p Params) (Tracker, error) {
	r := param.NewReader("reorder: eunomia", p)
	if err := r.Err(); err != nil {
		return nil, err
	}
	return NewEunomia(m), nil
}

// Agent is a Tracker that is told what the sender's agent adds to each packet: Head,
// the first sequence number of the connection, and whether it is the last packet of
// the connection so far (Eunomia 3.2.1).
type Agent interface {
	// Announce comes before Receive. It returns false if the packet is one of another
	// connection, which is not to be received.
	Announce(head bth.PSN, tail bool) bool
}

// Reset implements Tracker. The connection is finished or begins: its memory is given
// back.
func (e *Eunomia) Reset(psn bth.PSN) {
	if e.conn != none {
		e.mem.close(e.conn, e.load().dyn)
	}
	*e = Eunomia{mem: e.mem, expected: psn, start: psn, conn: none}
}

// Announce implements Agent. The paper takes Head for the first PSN expected; here
// both ends have agreed on that when they connected, so that a packet with
// another one is stale, of an earlier connection.
func (e *Eunomia) Announce(head bth.PSN, tail bool) bool {
	e.tail = tail && head == e.start
	return head == e.start
}

// Classify implements Tracker. Receive comes to the same verdict.
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

// Receive implements Tracker.
func (e *Eunomia) Receive(psn bth.PSN, ends bool) (v Verdict, advanced uint32) {
	v = e.Classify(psn)
	switch v {
	case InOrder:
		advanced = e.advance(ends)
	case Held:
		e.hold(psn, ends)
	}
	if v != Beyond {
		e.collect(psn)
	}
	e.tail = false
	e.note(psn, v == Beyond)
	return v, advanced
}

// hold tracks psn. Classify has found that there is room.
func (e *Eunomia) hold(psn bth.PSN, ends bool) {
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
	e.mem.setEnds(e.conn, psn, ends)
}

// advance moves the head past the packet in order, and past those that have been
// waiting for it (3.3.4).
func (e *Eunomia) advance(ends bool) (advanced uint32) {
	e.released.add(ends)
	e.expected = e.expected.Next()
	if e.conn == none {
		return 1
	}
	b := e.load()
	e.flush(&b)
	for advanced = 1; e.atHead(&b); advanced++ {
		e.released.add(e.flush(&b))
	}
	e.expected = b.head
	if b.circ < b.dyn && e.empty(0, b.circ) {
		b.absorb()
	}
	e.save(&b)
	return advanced
}

// atHead reports whether the packet at the head is tracked.
func (e *Eunomia) atHead(b *bitmap) bool {
	row, bit := b.locate(b.head)
	return e.bit(row, bit)
}

// flush resets the entry at the head, moves the head on and returns whether the packet
// ends a message.
func (e *Eunomia) flush(b *bitmap) (ends bool) {
	row, bit := b.locate(b.head)
	*e.mem.row(e.conn, row) &^= 1 << bit
	ends = e.mem.takeEnds(e.conn, b.head)
	b.step()
	return ends
}

// collect is the garbage collection (3.5.3): once everything up to LastSeq has been
// received in order, the memory is given back, unless the sender has gone on since. Then
// LastSeq follows the head, so that it stays comparable however long the sender goes on.
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

// Refuse implements Releaser.
func (e *Eunomia) Refuse(psn bth.PSN) { e.tail = false; e.note(psn, true) }

func (e *Eunomia) note(psn bth.PSN, refused bool) { e.heard, e.psn, e.refused = true, psn, refused }

// Expected implements Tracker.
func (e *Eunomia) Expected() bth.PSN { return e.expected }

// Feedback implements Tracker: ACK for a packet in order, SACK for one that is
// tracked, NACK for one that could not be (3.5.1).
func (e *Eunomia) Feedback(f *Feedback) {
	f.Expected = e.expected
	if e.heard && !e.psn.Before(e.expected) {
		f.HasSACK, f.SACK, f.Refused = true, e.psn, e.refused
	}
}

// Released implements Releaser.
func (e *Eunomia) Released() uint32 { return e.released.take() }

// Footprint implements Tracker: the address (4 bytes), and with a bitmap the 16 bytes
// of table 1, the relative addresses of all rows but the first (2 each) and the rows:
// 4 to 82 bytes with a cap of 256 bits (table 2).
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
