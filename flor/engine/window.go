package engine

// window tracks the finished reliable numbers of SENDs: all before next, and some after it. Both ends use it: the
// receiver records received SENDs, the sender acknowledged ones. Numbers are circular.
type window struct {
	next uint32
	bits []uint64 // state of the numbers from next on, indexed by number; its size is a power of two
}

func newWindow(first uint32, size int) window {
	return window{next: first, bits: make([]uint64, size/64)}
}

func (w *window) size() uint32 { return uint32(len(w.bits)) * 64 }

func (w *window) bit(rn uint32) (word *uint64, mask uint64) {
	return &w.bits[rn/64&uint32(len(w.bits)-1)], 1 << (rn % 64)
}

// holds reports whether rn is within the window or behind it.
func (w *window) holds(rn uint32) bool { return int32(rn-w.next) < 0 || rn-w.next < w.size() }

// done reports whether rn, which the window holds, is finished.
func (w *window) done(rn uint32) bool {
	if int32(rn-w.next) < 0 {
		return true
	}
	word, mask := w.bit(rn)
	return *word&mask != 0
}

// mark records that rn, which the window holds, is finished.
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
