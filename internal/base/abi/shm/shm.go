// Package shm shares memory between processes. It provides eventfds, and memfds that are sealed against a change of
// size, so that a mapping can never fault.
package shm

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PageSize is the unit of offsets and lengths of mappings.
const PageSize = 4096

// Errors of checks of memory received from another process.
var (
	ErrNotMemory = errors.New("shm: not memory that can be shared")  // EINVAL
	ErrSealed    = errors.New("shm: cannot be sealed")               // EPERM
	ErrReadOnly  = errors.New("shm: not writable")                   // EACCES
	ErrRange     = errors.New("shm: range is not inside the memory") // EINVAL
)

// Error is the error of this package's functions: the operation, the kind (one of the errors above, or nil) and the
// error number.
type Error struct {
	Op    string
	Kind  error
	Errno unix.Errno
}

// Error describes the error.
func (e *Error) Error() string {
	if e.Kind != nil {
		return fmt.Sprintf("%v: %s: %v", e.Kind, e.Op, e.Errno)
	}
	return fmt.Sprintf("shm: %s: %v", e.Op, e.Errno)
}

// Unwrap returns the kind and the number, for errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Errno}
	}
	return []error{e.Kind, e.Errno}
}

func fail(op string, kind error, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		errno = unix.EIO
	}
	return &Error{Op: op, Kind: kind, Errno: errno}
}

// Seals against a change of size.
const (
	SealShrink = unix.F_SEAL_SHRINK
	SealSize   = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

// Create creates a memfd of size bytes, close-on-exec, and seals it.
func Create(name string, size int64, seals int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fail("memfd_create", nil, err)
	}
	if err = ignoringEINTR(func() error { return unix.Ftruncate(fd, size) }); err != nil {
		_ = unix.Close(fd)
		return -1, fail("ftruncate", nil, err)
	}
	if err = Seal(fd, seals); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Seal adds seals to a memfd unless it has them.
func Seal(fd int, seals int) error {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fail("get seals", ErrNotMemory, unix.EINVAL)
	}
	if have&seals == seals {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fail("add seals", ErrSealed, err)
	}
	return nil
}

// Part is a part of a memfd.
type Part struct{ Length, Offset uint64 }

// Check verifies that parts of the file behind fd, received from another process, can be mapped for writing and will
// persist. The file must be a memfd without huge pages, because a page fault may find none free. Check seals the file
// against shrinking.
func Check(fd int, parts ...Part) error {
	var fs unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return fail("statfs", ErrNotMemory, unix.EINVAL)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return fail("file system", ErrNotMemory, unix.EINVAL)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_PATH != 0 {
		return fail("access mode", ErrReadOnly, unix.EACCES)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fail("get seals", ErrNotMemory, unix.EINVAL)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return fail("seals", ErrReadOnly, unix.EACCES)
	}
	if err := Seal(fd, SealShrink); err != nil {
		return err
	}
	// Read the size only now: it cannot shrink any more.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", ErrNotMemory, err)
	}
	size := uint64(st.Size)
	for _, p := range parts {
		if p.Length == 0 || p.Offset%PageSize != 0 || p.Offset > size || p.Length > size-p.Offset {
			return fail("range", ErrRange, unix.EINVAL)
		}
	}
	return nil
}

// maxMap is the longest mapping.
const maxMap = 1 << 46

// Map maps [offset, offset+length) of fd, shared, for reading and writing.
func Map(fd int, offset, length uint64) ([]byte, error) {
	if length == 0 || length > maxMap || offset > 1<<62 || offset%PageSize != 0 {
		return nil, fail("map", ErrRange, unix.EINVAL)
	}
	mem, err := unix.Mmap(fd, int64(offset), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fail("map", nil, err)
	}
	return mem, nil
}

// MapParts maps parts of fd one behind the other, like Map.
func MapParts(fd int, parts ...Part) ([]byte, error) {
	if len(parts) == 1 {
		return Map(fd, parts[0].Offset, parts[0].Length)
	}
	total := uint64(0)
	for _, p := range parts {
		if p.Length == 0 || p.Length%PageSize != 0 || p.Length > maxMap-total || p.Offset > 1<<62 || p.Offset%PageSize != 0 {
			return nil, fail("map", ErrRange, unix.EINVAL)
		}
		total += p.Length
	}
	mem, err := unix.Mmap(-1, 0, int(total), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fail("reserve", nil, err)
	}
	at := uint64(0)
	for _, p := range parts {
		_, err := unix.MmapPtr(fd, int64(p.Offset), unsafe.Pointer(&mem[at]), uintptr(p.Length),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
		if err != nil {
			_ = Unmap(mem)
			return nil, fail("map", nil, err)
		}
		at += p.Length
	}
	return mem, nil
}

// Unmap ends a mapping.
func Unmap(mem []byte) error {
	if err := unix.Munmap(mem); err != nil {
		return fail("unmap", nil, err)
	}
	return nil
}

// New creates a memfd and maps all of it.
func New(name string, size int64, seals int) (fd int, mem []byte, err error) {
	if size <= 0 {
		return -1, nil, fail("create", ErrRange, unix.EINVAL)
	}
	if fd, err = Create(name, size, seals); err != nil {
		return -1, nil, err
	}
	if mem, err = Map(fd, 0, uint64(size)); err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, mem, nil
}

// allocateStep is the part of a memfd to allocate at a time: a signal undoes the work of a call.
const allocateStep = 16 << 20

// Allocate allocates pages for the holes in [offset, offset+length) of fd. They count as memory of the caller. The NIC
// cannot access holes (Guard).
func Allocate(fd int, offset, length int64) error {
	for end := offset + length; offset < end; offset += allocateStep {
		n := min(end-offset, allocateStep)
		if err := ignoringEINTR(func() error { return unix.Fallocate(fd, 0, offset, n) }); err != nil {
			return fail("fallocate", nil, err)
		}
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// Eventfd creates a non-blocking eventfd, close-on-exec.
func Eventfd() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fail("eventfd", nil, err)
	}
	return fd, nil
}

// one is the value that Signal writes.
var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// Signal adds one to an eventfd. A full eventfd has been signalled already.
func Signal(fd int) error {
	err := ignoringEINTR(func() error { _, err := unix.Write(fd, one); return err })
	if err != nil && err != unix.EAGAIN {
		return fail("write eventfd", nil, err)
	}
	return nil
}
