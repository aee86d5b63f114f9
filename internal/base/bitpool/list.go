package bitpool

import "roced.io/roced/bth"

// List is the bitmap of one connection: a bit for each packet from RCV.NXT, the front,
// to RCV.HIGH, set if it has arrived. Blocks are aligned to PSNs that are a multiple of
// eight. Only the first and the last block can be reached, by start_ptr and end_ptr; an
// empty list has none.
type List struct {
	pool       *Pool
	front      bth.PSN // RCV.NXT
	high       bth.PSN // RCV.HIGH; the one before front if the list is empty
	start, end uint16  // start_ptr, end_ptr

	swappable, swapped bool
	linked             bool // in the pool's order of use
	older, newer       *List
	used               uint64 // when it was used last, in uses of the pool
}

// MakeList returns an empty list in pool. Call Reset before anything else, and do not move
// the list afterwards.
func MakeList(pool *Pool) List { return List{pool: pool, high: bth.PSN{}.Add(-1)} }

// Reset empties the list, which gives its blocks back; psn is the new front.
func (l *List) Reset(psn bth.PSN) {
	for !l.Empty() {
		l.Pop()
	}
	l.front, l.high, l.swapped = psn, psn.Add(-1), false
}

// Pool is the memory of the list.
func (l *List) Pool() *Pool { return l.pool }

// Front is RCV.NXT.
func (l *List) Front() bth.PSN { return l.front }

// High is RCV.HIGH.
func (l *List) High() bth.PSN { return l.high }

// Empty reports whether the list follows no packet.
func (l *List) Empty() bool { return l.front == l.high.Next() }

// Blocks is the number of blocks that the list holds.
func (l *List) Blocks() int {
	if l.Empty() {
		return 0
	}
	return int(blockOf(l.high)-blockOf(l.front))&blockMask + 1
}

// blockMask wraps numbers of blocks: there are as many as 24-bit PSNs divided by eight.
const blockMask = 1<<24/blockBits - 1

// blockOf numbers blocks along the PSNs.
func blockOf(psn bth.PSN) uint32 { return psn.Uint32() / blockBits }

// need is how many blocks must be added for the list to end with psn, which is after
// High.
func (l *List) need(psn bth.PSN) int {
	if l.Empty() {
		return int(blockOf(psn)-blockOf(l.front))&blockMask + 1
	}
	return int(blockOf(psn)-blockOf(l.high)) & blockMask
}

// CanExtend reports whether there are blocks enough for the list to end with psn, which
// is after High. Idle lists may be swapped out for that.
func (l *List) CanExtend(psn bth.PSN) bool { return l.pool.makeRoom(l.need(psn), l) }

// Extend makes the list end with psn, which is after High and whose bit is set. It takes
// all the blocks for that, or none and returns false.
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

// Reach reports whether psn, from Front to High, is in the first or in the last block,
// and if so, whether its bit is set.
func (l *List) Reach(psn bth.PSN) (set, ok bool) {
	b, ok := l.block(psn)
	return ok && l.pool.bits[b]&bit(psn) != 0, ok
}

// Set sets the bit of psn, which Reach reaches.
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

// Pop moves the front by one packet and gives back the block that it leaves. The list
// must not be empty.
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

// Cursor goes through a list from the front to the end, as the sender does when it looks
// for holes. The zero value stands before PSN 0; call Rewind first.
type Cursor struct {
	psn   bth.PSN
	block uint16 // that of psn, or of the one before if pending
	// pending is set when psn begins a block that may not exist yet.
	pending bool
}

// PSN is where the cursor stands, at most one behind High.
func (c *Cursor) PSN() bth.PSN { return c.psn }

// Rewind goes to the front of l. It must be called when that has passed the cursor.
func (c *Cursor) Rewind(l *List) { *c = Cursor{psn: l.front, block: l.start} }

// Seek goes on to the next packet whose bit is not set and reports whether there is one.
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

// Step goes on by one packet.
func (c *Cursor) Step() {
	c.psn = c.psn.Next()
	c.pending = c.pending || c.psn.Uint32()%blockBits == 0
}
