// Package mapped reads and writes mapped memory of another process, which may free pages at any time. An access to a
// missing page raises SIGBUS (shm.Guard). On a goroutine with debug.SetPanicOnFault this package recovers from it.
package mapped

import (
	"slices"
	"unsafe"
)

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

// Append appends src to b, with zeros in place of missing pages.
func Append(b, src []byte) []byte {
	n := len(b)
	b = slices.Grow(b, len(src))[:n+len(src)]
	if Copy(b[n:], src) {
		return b
	}
	for dst := b[n:]; len(src) > 0; {
		m := pageSize - int(uintptr(unsafe.Pointer(unsafe.SliceData(src)))%pageSize)
		m = min(m, len(src))
		if !Copy(dst[:m], src[:m]) {
			clear(dst[:m])
		}
		dst, src = dst[m:], src[m:]
	}
	return b
}

// Within returns the offset of part in whole. ok is false if it lies elsewhere.
func Within(whole, part []byte) (off int, ok bool) {
	d := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	if d > uintptr(len(whole)) || uintptr(len(part)) > uintptr(len(whole))-d {
		return 0, false
	}
	return int(d), true
}

// Join returns a and b as one slice. ok is false if b does not begin where a ends. The caller keeps both in use.
func Join(a, b []byte) (joined []byte, ok bool) {
	if len(a) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(a)))+uintptr(len(a)) != uintptr(unsafe.Pointer(unsafe.SliceData(b))) {
		return nil, false
	}
	return unsafe.Slice(unsafe.SliceData(a), len(a)+len(b)), true
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
