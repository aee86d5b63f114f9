package bitpool

import "roced.io/roced/bth"

// List is the bitmap of one connection: a bit for each packet from RCV.NXT, the front, to RCV.HIGH, set if the packet has
// arrived. Blocks are aligned to PSNs that are multiples of eight. Only the first and the last block are accessible, with
// start_ptr and end_ptr; an empty list has no block.
type List struct {
	pool       *Pool
	front      bth.PSN // RCV.NXT
	high       bth.PSN // RCV.HIGH; the PSN before front if the list is empty
	start, end uint16  // start_ptr, end_ptr

	swappable, swapped bool
	linked             bool // linked in the pool's order of use
	older, newer       *List
	used               uint64 // pool.uses at the last use
}

// MakeList returns an empty list in pool. Call Reset first, and do not move the list after that.
func MakeList(pool *Pool) List { return List{pool: pool, high: bth.PSN{}.Add(-1)} }

// Reset empties the list and returns its blocks; psn is the new front.
func (l *List) Reset(psn bth.PSN) {
	for !l.Empty() {
		l.Pop()
	}
	l.front, l.high, l.swapped = psn, psn.Add(-1), false
}

// Pool returns the memory of the list.
func (l *List) Pool() *Pool { return l.pool }

// Front returns RCV.NXT.
func (l *List) Front() bth.PSN { return l.front }

// High returns RCV.HIGH.
func (l *List) High() bth.PSN { return l.high }

// Empty reports whether the list tracks no packet.
func (l *List) Empty() bool { return l.front == l.high.Next() }

// Blocks returns the number of blocks that the list holds.
func (l *List) Blocks() int {
	if l.Empty() {
		return 0
	}
	return int(blockOf(l.high)-blockOf(l.front))&blockMask + 1
}

// blockMask wraps block numbers, of which there are 2^24/8.
const blockMask = 1<<24/blockBits - 1

// blockOf returns the number of the block of psn.
func blockOf(psn bth.PSN) uint32 { return psn.Uint32() / blockBits }

// need returns the number of blocks to add for the list to end with psn, which is after High.
func (l *List) need(psn bth.PSN) int {
	if l.Empty() {
		return int(blockOf(psn)-blockOf(l.front))&blockMask + 1
	}
	return int(blockOf(psn)-blockOf(l.high)) & blockMask
}

// CanExtend reports whether there are enough blocks for the list to end with psn, which is after High. It may swap out idle
// lists for that.
func (l *List) CanExtend(psn bth.PSN) bool { return l.pool.makeRoom(l.need(psn), l) }

// Extend makes the list end with psn, which is after High, and sets the bit of psn. If there are too few blocks, it changes
// nothing and returns false.
func (l *List) Extend(psn bth.PSN) bool {
	n := l.need(psn)
	if !l.pool.makeRoom(n, l) {
		return false
	}
	fresh := l.Empty()
	for range n {
		b := l.pool.take()
		if fresh {
			l.start, fresh = b, false
		} else {
			l.pool.next[l.end] = b
		}
		l.end = b
	}
	l.high = psn
	l.pool.bits[l.end] |= bit(psn)
	l.touch()
	return true
}

// Reach returns the bit of psn, from Front to High. ok is false if psn is neither in the first nor in the last block.
func (l *List) Reach(psn bth.PSN) (set, ok bool) {
	b, ok := l.block(psn)
	return ok && l.pool.bits[b]&bit(psn) != 0, ok
}

// Set sets the bit of psn, for which Reach returns ok.
func (l *List) Set(psn bth.PSN) {
	if b, ok := l.block(psn); ok {
		l.pool.bits[b] |= bit(psn)
		l.touch()
	}
}

// ClearFront clears the bit of the front.
func (l *List) ClearFront() { l.pool.bits[l.start] &^= bit(l.front) }

func (l *List) block(psn bth.PSN) (b uint16, ok bool) {
	switch blockOf(psn) {
	case blockOf(l.front):
		return l.start, true
	case blockOf(l.high):
		return l.end, true
	}
	return 0, false
}

// Pop moves the front by one packet and returns a block that has become unused. The list must not be empty.
func (l *List) Pop() {
	last, b := l.front == l.high, l.start
	l.front = l.front.Next()
	if last || l.front.Uint32()%blockBits == 0 {
		l.start = l.pool.next[b]
		l.pool.give(b)
	}
	if last {
		l.unlink()
	}
}

func bit(psn bth.PSN) uint8 { return 1 << (psn.Uint32() % blockBits) }

// Cursor iterates over a list from the front to the end, to find holes. Call Rewind first.
type Cursor struct {
	psn   bth.PSN
	block uint16 // block of psn, or of the PSN before if pending
	// pending is set when psn begins a block that may not exist yet.
	pending bool
}

// PSN returns the position of the cursor, at most the PSN after High.
func (c *Cursor) PSN() bth.PSN { return c.psn }

// Rewind moves the cursor to the front of l. It must be called when the front has passed the cursor.
func (c *Cursor) Rewind(l *List) { *c = Cursor{psn: l.front, block: l.start} }

// Seek moves to the next packet whose bit is not set and reports whether there is one.
func (c *Cursor) Seek(l *List) bool {
	for c.psn != l.high.Next() {
		if blockOf(c.psn) == blockOf(l.front) {
			c.block, c.pending = l.start, false
		} else if c.pending {
			c.block, c.pending = l.pool.next[c.block], false
		}
		if l.pool.bits[c.block]&bit(c.psn) == 0 {
			return true
		}
		c.Step()
	}
	return false
}

// Step moves by one packet.
func (c *Cursor) Step() {
	c.psn = c.psn.Next()
	c.pending = c.pending || c.psn.Uint32()%blockBits == 0
}
