package reorder

import "roced.io/roced/bth"

// bitmap is the state of a hybrid-dynamic bitmap (Eunomia, table 1). A packet is
// referred to by its row, a block of 16 bits, and its bit in it. The rows at the top,
// circ of them, are a ring that begins at the head; the rows below are linear: their
// first bit stands for the packet after Tail. So nothing has to be moved when rows
// are added.
//
// While there is no linear part, Tail moves with the head.
type bitmap struct {
	head    bth.PSN // first missing
	tail    bth.PSN // highest that the circular part can accommodate
	last    bth.PSN // LastSeq
	hasLast bool
	at      uint32 // Head BM ID and Head BM Index: place of the head, bits from row 0
	circ    uint32 // Circular BM Size, rows
	dyn     uint32 // Dynamic Size, rows
}

// locate returns the place of psn, which is not before the head. It may be beyond
// the last row.
func (b *bitmap) locate(psn bth.PSN) (row, bit uint32) {
	place := b.circ * blockBits
	if d := psn.Diff(b.tail); d > 0 {
		place += uint32(d - 1)
	} else {
		place = (b.at + uint32(psn.Diff(b.head))) % place
	}
	return place / blockBits, place % blockBits
}

// step moves the head by one, out of the circular part if it was at its end.
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

// absorb makes the linear part circular, once nothing is tracked in the circular
// part: what is missing there up to Tail gets the places just before the linear
// part, and all that is tracked keeps its own.
func (b *bitmap) absorb() {
	b.at = b.circ*blockBits - uint32(b.tail.Diff(b.head)+1)
	b.circ = b.dyn
	b.tail = b.head.Add(int(b.circ*blockBits) - 1)
}

// Places of the state in the metadata, in blocks (Eunomia, figure 7).
const (
	metaHead = 2 * iota
	metaTail
	metaLast
	metaPlace // Head BM ID and Head BM Index
	metaSizes = metaPlace + 1
)

// validLast marks LastSeq as known.
const validLast = 1 << 31

// create makes a bitmap of one row, whose head is the expected packet. There is room.
func (e *Eunomia) create() {
	e.conn, _ = e.mem.open()
	e.mem.addRow(e.conn, 0)
	e.save(&bitmap{head: e.expected, tail: e.expected.Add(blockBits - 1), circ: 1, dyn: 1})
}

// bit reports whether a packet is tracked.
func (e *Eunomia) bit(row, bit uint32) bool { return *e.mem.row(e.conn, row)>>bit&1 != 0 }

// empty reports whether nothing is tracked in rows from..to-1.
func (e *Eunomia) empty(from, to uint32) bool {
	for row := from; row < to; row++ {
		if *e.mem.row(e.conn, row) != 0 {
			return false
		}
	}
	return true
}

// load reads the state out of the memory.
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

// save writes it back.
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
