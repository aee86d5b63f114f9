package nictest

import "roced.io/roced/rocev2"

// RemoteMemory is memory that NICs can only copy.
type RemoteMemory struct {
	*rocev2.Bytes
	Reads, Writes int  // accesses so far, without atomic operations
	Gone          bool // accesses fail
}

var _ rocev2.Distant = (*RemoteMemory)(nil)

// View fails.
func (f *RemoteMemory) View(uint64, int) ([]byte, bool) { return nil, false }

// Read implements rocev2.Distant.
func (f *RemoteMemory) Read(off uint64, p []byte) bool {
	f.Reads++
	v, ok := f.Bytes.View(off, len(p))
	if ok = ok && !f.Gone; ok {
		copy(p, v)
	}
	return ok
}

// Write implements rocev2.Memory.
func (f *RemoteMemory) Write(off uint64, p []byte) bool {
	f.Writes++
	return !f.Gone && f.Bytes.Write(off, p)
}

// CompareSwap implements rocev2.Memory.
func (f *RemoteMemory) CompareSwap(off uint64, compare, swap uint64) (uint64, bool) {
	if f.Gone {
		return 0, false
	}
	return f.Bytes.CompareSwap(off, compare, swap)
}

// FetchAdd implements rocev2.Memory.
func (f *RemoteMemory) FetchAdd(off uint64, add uint64) (uint64, bool) {
	if f.Gone {
		return 0, false
	}
	return f.Bytes.FetchAdd(off, add)
}
