package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guard protects a process that maps memory of another one. Without it the kernel allocates a page at the first access
// to a hole, and charges the page to the control group of the accessing process. A process that maps a sparse memfd, or
// punches holes into it later, could so exhaust the memory of the other one.
//
// With it, an access to a hole raises SIGBUS, and a system call returns EFAULT.
type Guard struct{ fd int }

// Constants of linux/userfaultfd.h.
const (
	uffdUserModeOnly = 1
	uffdAPI          = 0xaa
	uffdMissingShmem = 1 << 5
	uffdSIGBUS       = 1 << 7
	uffdMissing      = 1

	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
)

// NewGuard opens a userfaultfd. It needs Linux 5.11 and a seccomp profile with userfaultfd, but no privilege.
func NewGuard() (*Guard, error) {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|uffdUserModeOnly, 0, 0)
	if e != 0 {
		return nil, fail("userfaultfd", nil, e)
	}
	g := &Guard{fd: int(fd)}
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI, features: uffdMissingShmem | uffdSIGBUS}
	if e := g.ioctl(uffdioAPI, unsafe.Pointer(&api)); e != 0 {
		_ = g.Close()
		return nil, fail("userfaultfd features", nil, e)
	}
	return g, nil
}

// Map is MapParts with protection; a nil Guard gives none.
func (g *Guard) Map(fd int, parts ...Part) ([]byte, error) {
	mem, err := MapParts(fd, parts...)
	if err != nil || g == nil {
		return mem, err
	}
	if err := g.register(mem); err != nil {
		_ = Unmap(mem)
		return nil, err
	}
	return mem, nil
}

// register protects a mapping.
func (g *Guard) register(mem []byte) error {
	r := struct{ start, length, mode, ioctls uint64 }{uint64(uintptr(unsafe.Pointer(&mem[0]))), uint64(len(mem)), uffdMissing, 0}
	if e := g.ioctl(uffdioRegister, unsafe.Pointer(&r)); e != 0 {
		return fail("userfaultfd register", nil, e)
	}
	return nil
}

// Close closes the userfaultfd, which ends the protection of all mappings.
func (g *Guard) Close() error { return unix.Close(g.fd) }

func (g *Guard) ioctl(request uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(g.fd), request, uintptr(arg))
	return e
}
