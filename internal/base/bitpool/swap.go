package bitpool

// swapAfter is the number of uses by other lists, successful or not, after which an idle list may be swapped out. It is the
// number of packets that a pool of the paper tracks.
const swapAfter = 1024

// Swappable allows the pool to take the blocks of l after a time without use, when it runs out of blocks (MELO 3.2.5). The
// owner of l must keep a copy of its content elsewhere, off the chip. Otherwise a connection would hold blocks for ever if
// its peer is gone, or if its peer has sent a packet far ahead on purpose.
func (l *List) Swappable() { l.swappable = true }

// Swapped reports whether l has been swapped out. It is empty then, with an unchanged front. The owner must call SwapIn and
// restore the content with Extend.
func (l *List) Swapped() bool { return l.swapped }

// SwapIn ends the swapped state.
func (l *List) SwapIn() { l.swapped = false }

// Skip moves the front of an empty list by one packet.
func (l *List) Skip() { l.front, l.high = l.front.Next(), l.front }

// touch makes a list with blocks the latest in the order of use.
func (l *List) touch() {
	p := l.pool
	p.uses++
	l.used = p.uses
	if !l.swappable || p.newest == l {
		return
	}
	l.unlink()
	if l.older = p.newest; l.older != nil {
		l.older.newer = l
	} else {
		p.oldest = l
	}
	p.newest, l.linked = l, true
}

// unlink removes a list from the order of use.
func (l *List) unlink() {
	if !l.linked {
		return
	}
	p := l.pool
	if l.newer != nil {
		l.newer.older = l.older
	} else {
		p.newest = l.older
	}
	if l.older != nil {
		l.older.newer = l.newer
	} else {
		p.oldest = l.newer
	}
	l.older, l.newer, l.linked = nil, nil, false
}

// makeRoom swaps out idle lists, except but, until n blocks are free. If that is impossible, it returns false and counts a
// use of the pool.
func (p *Pool) makeRoom(n int, but *List) bool {
	for p.Free() < n {
		l := p.oldest
		if l == but && l != nil {
			l = l.newer
		}
		if l == nil || p.uses-l.used < swapAfter {
			p.uses++
			return false
		}
		front := l.front
		l.Reset(front)
		l.swapped = true
	}
	return true
}
