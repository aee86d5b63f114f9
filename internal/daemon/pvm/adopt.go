package pvm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotMemory says that descriptors are not of the files mem and maps of a process.
var ErrNotMemory = errors.New("pvm: not /proc/PID/mem and maps")

// Adopt makes a Process of descriptors of its files mem, opened for reading and writing,
// and maps, which another process has sent; they stay the caller's. It fails with
// ErrNotMemory if they are anything else.
//
// The kernel has looked at the rights of whoever opened mem, and asks nobody again
// (fs/proc/base.c, mem_open). So the sender can pass no more than it could do itself:
// whatever is written through the descriptor, it could have written. The address space
// may be that of any process which the sender may trace.
func Adopt(mem, maps int) (*Process, error) {
	owner, err := identify(mem, "mem", unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	other, err := identify(maps, "maps", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if owner != other {
		return nil, fmt.Errorf("%w: of %s and %s", ErrNotMemory, owner, other)
	}
	p := &Process{}
	if p.mem, err = unix.FcntlInt(uintptr(mem), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if p.maps, err = unix.FcntlInt(uintptr(maps), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		unix.Close(p.mem)
		return nil, err
	}
	return p, nil
}

// identify makes sure that fd is the file of that name of a process, opened in a mode,
// and returns the folder of the process as this process sees it. Anything else could make
// whoever reads it wait. Files of procfs are known by their names, which nobody can give
// them: but a file that is mounted on another shows the name of that.
func identify(fd int, name string, mode int) (folder string, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || int64(fs.Type) != unix.PROC_SUPER_MAGIC {
		return "", fmt.Errorf("%w: %s is not in /proc", ErrNotMemory, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != mode || flags&unix.O_PATH != 0 {
		return "", fmt.Errorf("%w: %s has been opened otherwise", ErrNotMemory, name)
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG ||
		st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return "", fmt.Errorf("%w: %s is mounted on another file", ErrNotMemory, name)
	}
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil || path.Base(link) != name {
		return "", fmt.Errorf("%w: %s is %q, %v", ErrNotMemory, name, link, err)
	}
	return path.Dir(link), nil
}
