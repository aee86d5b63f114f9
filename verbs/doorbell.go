package verbs

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// doorbell is the shared bitmap of queue pairs with new work requests, and the eventfd
// that wakes a sleeping daemon.
type doorbell struct {
	mem []byte
	fd  int
}

// ring makes the daemon read the send queue of a queue pair. The doorbells must not be released meanwhile: Close
// releases all queue pairs before the doorbells.
func (d *doorbell) ring(handle uint32) error {
	base := unsafe.Pointer(unsafe.SliceData(d.mem))
	word := handle / 64
	atomic.OrUint64((*uint64)(unsafe.Add(base, uverbs.DoorbellMap+8*uintptr(word))), 1<<(handle%64))
	atomic.OrUint64((*uint64)(unsafe.Add(base, uverbs.DoorbellSummary+8*uintptr(word/64))), 1<<(word%64))
	if core := (*uint32)(unsafe.Add(base, uverbs.DoorbellCore)); atomic.LoadUint32(core) == uverbs.CoreAsked {
		atomic.StoreUint32(core, currentCore()+1)
	}
	sleeping := (*uint32)(unsafe.Add(base, uverbs.DoorbellSleeping))
	if atomic.LoadUint32(sleeping) != 0 && atomic.SwapUint32(sleeping, 0) != 0 {
		return shm.Signal(d.fd)
	}
	return nil
}

// currentCore returns the number of the calling thread's core.
func currentCore() (n uint32) {
	_, _, _ = unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0) // it fails for a bad address only
	return n
}

// close releases the doorbells.
func (d *doorbell) close(f *sharedFile) {
	if d.mem != nil {
		f.unmap(d.mem)
		_ = unix.Close(d.fd)
		d.mem = nil
	}
}
