package pvm

import (
	"encoding/binary"
	"math"

	"roced.io/roced/rocev2"
)

// Region is memory of a process from a base address on.
//
// An atomic operation reads and then writes. It is atomic among the queue pairs of one NIC because the NIC runs one
// operation at a time, as IBV_ATOMIC_HCA promises.
type Region struct {
	p    *Process
	base uint64
}

var _ rocev2.Distant = Region{}

// NewRegion returns the memory of p from base on. Check must have accepted it.
func NewRegion(p *Process, base uint64) Region { return Region{p, base} }

// View implements rocev2.Memory. It always fails, as the memory is not mapped here.
func (r Region) View(uint64, int) ([]byte, bool) { return nil, false }

// Read implements rocev2.Distant.
func (r Region) Read(off uint64, b []byte) bool {
	return r.p.Read(r.base+off, b) || r.lost(off, len(b))
}

// Write implements rocev2.Memory.
func (r Region) Write(off uint64, b []byte) bool {
	return r.p.Write(r.base+off, b) || r.lost(off, len(b))
}

// lost reports a failed access to Process.Lost. It always returns false.
func (r Region) lost(off uint64, n int) bool {
	if r.p.Lost != nil {
		r.p.Lost(r.base+off, n)
	}
	return false
}

// CompareSwap implements rocev2.Memory.
func (r Region) CompareSwap(off uint64, compare, swap uint64) (orig uint64, ok bool) {
	orig, ok = r.word(off)
	if !ok || orig != compare {
		return orig, ok
	}
	return orig, r.store(off, swap)
}

// FetchAdd implements rocev2.Memory.
func (r Region) FetchAdd(off uint64, add uint64) (orig uint64, ok bool) {
	if orig, ok = r.word(off); !ok {
		return 0, false
	}
	return orig, r.store(off, orig+add)
}

func (r Region) word(off uint64) (uint64, bool) {
	var b [8]byte
	if !r.aligned(off) || !r.Read(off, b[:]) {
		return 0, false
	}
	return binary.NativeEndian.Uint64(b[:]), true
}

func (r Region) store(off, v uint64) bool {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return r.Write(off, b[:])
}

// aligned reports whether the offset is a multiple of 8 bytes: an access that crosses a page could be torn.
func (r Region) aligned(off uint64) bool { return (r.base+off)&7 == 0 && r.base+off <= math.MaxInt64 }
