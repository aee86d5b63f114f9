package bitpool

// swapAfter is how many packets must have come for other lists, with or without success,
// before an idle one may be swapped out: as many as a pool of the paper follows.
const swapAfter = 1024

// Swappable makes l one whose owner keeps what it says elsewhere too, off the chip: if the
// pool runs out of blocks, l may have to give its own back after a time without use (MELO
// 3.2.5). So nobody holds for ever what others need: a connection whose peer has gone, or
// one whose peer has sent one packet far ahead on purpose.
func (l *List) Swappable() { l.swappable = true }

// Swapped reports whether l has been swapped out. It is empty then, with the front where it
// was, until its owner has called SwapIn and extended it to what it was.
func (l *List) Swapped() bool { return l.swapped }

// SwapIn ends that.
func (l *List) SwapIn() { l.swapped = false }

// Skip moves the front of an empty list by one packet.
func (l *List) Skip() { l.front, l.high = l.front.Next(), l.front }

// touch puts a list that holds blocks behind all others in the order of use.
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

// unlink takes a list out of the order of use.
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

// makeRoom swaps idle lists out until n blocks are free. It returns false if there are not
// so many, and counts that as a use of the pool.
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
