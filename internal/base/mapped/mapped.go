// Package mapped reads and writes mapped memory of another process, which may free pages at any time. An access to a
// missing page raises SIGBUS (shm.Guard). On a goroutine with debug.SetPanicOnFault this package recovers from it.
package mapped

import "slices"

// Recover ends a fault, after which *done stays false. It re-raises any other panic. Defer it around an access that sets
// *done at its end: then no access without a fault pays for recover.
func Recover(done *bool) {
	if *done {
		return
	}
	r := recover()
	if _, fault := r.(interface{ Addr() uintptr }); r != nil && !fault {
		panic(r)
	}
}

// Copy copies src to dst, which has the same length. If a page is missing it returns false. Then dst may have changed.
func Copy(dst, src []byte) (ok bool) {
	defer Recover(&ok)
	copy(dst, src)
	return true
}

// Append appends src to b, or as many zeros if a page of src is missing.
func Append(b, src []byte) []byte {
	n := len(b)
	b = slices.Grow(b, len(src))[:n+len(src)]
	if !Copy(b[n:], src) {
		clear(b[n:])
	}
	return b
}

// pageSize is the smallest page size of all machines.
const pageSize = 4096

// Present reports whether no page of b is missing now.
func Present(b []byte) (ok bool) {
	defer Recover(&ok)
	touch(b)
	return true
}

// touch reads a byte of each page. The compiler would omit reads without a result.
//
//go:noinline
func touch(b []byte) (any byte) {
	for i := 0; i < len(b); i += pageSize {
		any |= b[i]
	}
	if len(b) > 0 {
		any |= b[len(b)-1]
	}
	return any
}
