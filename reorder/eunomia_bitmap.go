package reorder

import "roced.io/roced/bth"

// bitmap is the state of a hybrid-dynamic bitmap (Eunomia, table 1). A row, a block of 16 bits, and a bit number locate
// a packet. The first circ rows are a ring that begins at the head. The other rows are linear; their first bit is for
// the packet after Tail. Adding rows therefore moves no bits.
//
// Without a linear part, Tail moves with the head.
type bitmap struct {
	head    bth.PSN // lowest missing PSN
	tail    bth.PSN // highest PSN that the circular part can accommodate
	last    bth.PSN // LastSeq
	hasLast bool
	at      uint32 // Head BM ID and Head BM Index: bit number of the head, from row 0
	circ    uint32 // Circular BM Size, rows
	dyn     uint32 // Dynamic Size, rows
}

// locate returns the row and the bit of psn, which is not before the head. The row may be beyond the last one.
func (b *bitmap) locate(psn bth.PSN) (row, bit uint32) {
	place := b.circ * blockBits
	if d := psn.Diff(b.tail); d > 0 {
		place += uint32(d - 1)
	} else {
		place = (b.at + uint32(psn.Diff(b.head))) % place
	}
	return place / blockBits, place % blockBits
}

// step moves the head by one, and out of the circular part if it was at its end.
func (b *bitmap) step() {
	b.head = b.head.Next()
	if b.at++; b.at == b.circ*blockBits {
		b.at = 0
	}
	switch {
	case b.circ == b.dyn:
		b.tail = b.tail.Next()
	case b.head.After(b.tail):
		b.absorb()
	}
}

// absorb makes the linear part circular when the circular part tracks no packets. The missing packets up to Tail get
// the bits before the linear part; tracked packets keep theirs.
func (b *bitmap) absorb() {
	b.at = b.circ*blockBits - uint32(b.tail.Diff(b.head)+1)
	b.circ = b.dyn
	b.tail = b.head.Add(int(b.circ*blockBits) - 1)
}

// Offsets of the state in the metadata, in blocks (Eunomia, figure 7).
const (
	metaHead = 2 * iota
	metaTail
	metaLast
	metaPlace // Head BM ID and Head BM Index
	metaSizes = metaPlace + 1
)

// validLast marks LastSeq as known.
const validLast = 1 << 31

// create makes a bitmap of one row whose head is the expected packet. The caller has checked that there is room.
func (e *Eunomia) create() {
	e.conn, _ = e.mem.open()
	e.mem.addRow(e.conn, 0)
	e.save(&bitmap{head: e.expected, tail: e.expected.Add(blockBits - 1), circ: 1, dyn: 1})
}

// bit reports whether a packet is tracked.
func (e *Eunomia) bit(row, bit uint32) bool { return *e.mem.row(e.conn, row)>>bit&1 != 0 }

// empty reports whether rows from to to-1 track no packet.
func (e *Eunomia) empty(from, to uint32) bool {
	for row := from; row < to; row++ {
		if *e.mem.row(e.conn, row) != 0 {
			return false
		}
	}
	return true
}

// load reads the state from the memory.
func (e *Eunomia) load() bitmap {
	word := func(k uint32) uint32 {
		return uint32(*e.mem.meta(e.conn, k)) | uint32(*e.mem.meta(e.conn, k+1))<<16
	}
	place, sizes := *e.mem.meta(e.conn, metaPlace), *e.mem.meta(e.conn, metaSizes)
	last := word(metaLast)
	return bitmap{
		head: bth.MakePSN(word(metaHead)), tail: bth.MakePSN(word(metaTail)),
		last: bth.MakePSN(last), hasLast: last&validLast != 0,
		at:   uint32(place&0xff)*blockBits + uint32(place>>8),
		circ: uint32(sizes & 0xff), dyn: uint32(sizes >> 8),
	}
}

// save writes the state to the memory.
func (e *Eunomia) save(b *bitmap) {
	put := func(k, v uint32) {
		*e.mem.meta(e.conn, k), *e.mem.meta(e.conn, k+1) = uint16(v), uint16(v>>16)
	}
	last := b.last.Uint32()
	if b.hasLast {
		last |= validLast
	}
	put(metaHead, b.head.Uint32())
	put(metaTail, b.tail.Uint32())
	put(metaLast, last)
	*e.mem.meta(e.conn, metaPlace) = uint16(b.at/blockBits | b.at%blockBits<<8)
	*e.mem.meta(e.conn, metaSizes) = uint16(b.circ | b.dyn<<8)
}
