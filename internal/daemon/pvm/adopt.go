package pvm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotMemory reports that the descriptors are not the files mem and maps of one process.
var ErrNotMemory = errors.New("pvm: the descriptors are not /proc/PID/mem and /proc/PID/maps of one process")

// Adopt makes a Process from two descriptors that another process has sent: its /proc/PID/mem, open for reading and
// writing, and its maps. Adopt duplicates the descriptors; the caller still owns its own. Adopt returns ErrNotMemory
// for any other file.
//
// The kernel checks access rights only when a process opens mem (fs/proc/base.c, mem_open). Writes through the
// descriptor therefore never exceed the rights of the sender. The address space may belong to any process that the
// sender may trace.
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
		return nil, fmt.Errorf("%w: they belong to %s and %s", ErrNotMemory, owner, other)
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

// identify checks that fd is the /proc file of that name, opened in that mode, and returns its process's folder as
// this process sees it. A read from any other file could block the daemon. Processes cannot choose the names of
// procfs files. A file that is mounted on another file shows the other file's name, so identify refuses mount roots.
func identify(fd int, name string, mode int) (folder string, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || int64(fs.Type) != unix.PROC_SUPER_MAGIC {
		return "", fmt.Errorf("%w: %s is not in /proc", ErrNotMemory, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != mode || flags&unix.O_PATH != 0 {
		return "", fmt.Errorf("%w: %s has the wrong access mode", ErrNotMemory, name)
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
