package memory

import (
	"sync/atomic"
	"unsafe"
)

// Bytes is a Memory over a slice, such as a mapping of shared memory. Other processes may use the memory at the same
// time; the atomic operations are atomic for them too.
type Bytes struct{ b []byte }

// NewBytes returns b as a Memory.
func NewBytes(b []byte) *Bytes { return &Bytes{b} }

// Len returns the size of the memory.
func (m *Bytes) Len() uint64 { return uint64(len(m.b)) }

// View returns n bytes at off.
func (m *Bytes) View(off uint64, n int) ([]byte, bool) {
	if n < 0 || off > m.Len() || uint64(n) > m.Len()-off {
		return nil, false
	}
	return m.b[off : off+uint64(n) : off+uint64(n)], true
}

// Write places p at off.
func (m *Bytes) Write(off uint64, p []byte) bool {
	b, ok := m.View(off, len(p))
	copy(b, p)
	return ok
}

// word returns the 8 bytes at off as a number in host byte order, nil if they are incomplete or not aligned.
func (m *Bytes) word(off uint64) *uint64 {
	b, ok := m.View(off, 8)
	if !ok {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)&7 != 0 {
		return nil
	}
	return (*uint64)(p)
}

// CompareSwap stores swap at off if the number there equals compare, and returns the original number.
func (m *Bytes) CompareSwap(off uint64, compare, swap uint64) (orig uint64, ok bool) {
	p := m.word(off)
	if p == nil {
		return 0, false
	}
	for {
		if v := atomic.LoadUint64(p); v != compare {
			return v, true
		}
		if atomic.CompareAndSwapUint64(p, compare, swap) {
			return compare, true
		}
	}
}

// FetchAdd adds to the number at off and returns the original number.
func (m *Bytes) FetchAdd(off uint64, add uint64) (orig uint64, ok bool) {
	p := m.word(off)
	if p == nil {
		return 0, false
	}
	return atomic.AddUint64(p, add) - add, true
}
