package engine

// window knows which reliable numbers of SENDs are done with: all before next, and some of those ahead
// of it. It is the same at both ends: the receiver notes what it has taken, the sender what was
// acknowledged. Numbers are circular.
type window struct {
	next uint32
	bits []uint64 // of the numbers from next on, by number; their number is a power of two
}

func newWindow(first uint32, size int) window {
	return window{next: first, bits: make([]uint64, size/64)}
}

func (w *window) size() uint32 { return uint32(len(w.bits)) * 64 }

func (w *window) bit(rn uint32) (word *uint64, mask uint64) {
	return &w.bits[rn/64&uint32(len(w.bits)-1)], 1 << (rn % 64)
}

// holds reports whether rn is not further ahead than the window reaches; what lies behind it is held.
func (w *window) holds(rn uint32) bool { return int32(rn-w.next) < 0 || rn-w.next < w.size() }

// done reports whether rn, which the window holds, is done with.
func (w *window) done(rn uint32) bool {
	if int32(rn-w.next) < 0 {
		return true
	}
	word, mask := w.bit(rn)
	return *word&mask != 0
}

// mark notes that rn, which the window holds, is done with.
func (w *window) mark(rn uint32) {
	if int32(rn-w.next) < 0 {
		return
	}
	word, mask := w.bit(rn)
	*word |= mask
	for word, mask = w.bit(w.next); *word&mask != 0; word, mask = w.bit(w.next) {
		*word &^= mask
		w.next++
	}
}
