package shm

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// FileKind is a kind of file whose memory can be shared.
type FileKind int

// Kinds of files. Page faults on other files may wait for a disk, a server or a process.
const (
	Tmpfs FileKind = iota
	Hugetlbfs
	DMABuf
)

// String returns the kind's name in the kernel.
func (k FileKind) String() string { return [...]string{"tmpfs", "hugetlbfs", "dma-buf"}[k] }

// File describes a file of another process. That process may truncate it and punch holes into it at any time.
type File struct {
	Kind     FileKind
	Exporter string // of a dma-buf: the driver
	Writable bool
	Inode    uint64
	Device   uint64
	size     uint64
	unit     uint64 // of mappings: the page size
}

// Inspect describes a file whose descriptor another process has sent. The file must be a tmpfs or hugetlbfs file or a
// dma-buf, opened for reading. Inspect never blocks: it calls no file system that can.
func Inspect(fd int) (f File, err error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH != 0 {
		return f, fail("access mode", ErrNotMemory, unix.EBADF)
	}
	if flags&unix.O_ACCMODE == unix.O_WRONLY {
		return f, fail("access mode", ErrNotMemory, unix.EACCES)
	}
	f.Writable = flags&unix.O_ACCMODE == unix.O_RDWR
	// Only tmpfs and hugetlbfs know seals. Their devices and pipes have none.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		f.Writable = f.Writable && seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) == 0
		err = f.inspectSystem(fd)
	} else if f.Exporter = exporter(fd); f.Exporter != "" {
		f.Kind, f.unit, err = DMABuf, uint64(os.Getpagesize()), nil
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return f, fail("file type", ErrNotMemory, unix.EOPNOTSUPP)
	}
	f.size, f.Inode, f.Device = uint64(st.Size), st.Ino, st.Dev
	return f, nil
}

// inspectSystem looks up the file system.
func (f *File) inspectSystem(fd int) error {
	var fs unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return err
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		f.Kind, f.unit = Tmpfs, uint64(os.Getpagesize())
	case unix.HUGETLBFS_MAGIC:
		f.Kind, f.unit = Hugetlbfs, uint64(fs.Bsize)
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

// exporter returns the driver of a dma-buf, "" for other files. The kernel describes a dma-buf in its fdinfo.
func exporter(fd int) string {
	info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(info) {
		if name, ok := bytes.CutPrefix(line, []byte("exp_name:")); ok {
			return string(bytes.TrimSpace(name))
		}
	}
	return ""
}

// MapFile maps the pages of [offset, offset+length) of an inspected file, writable if the file is. lead is the distance
// of offset from the start of the mapping. A page that is missing at an access raises SIGBUS, or EFAULT of a system
// call. A nil Guard fills holes, but not beyond the end of the file.
func (g *Guard) MapFile(fd int, f File, offset, length uint64) (mem []byte, lead uint64, err error) {
	end := offset + length
	if length == 0 || end < offset || end > maxMap || end > whole(f.size, f.unit) {
		return nil, 0, fail("range", ErrRange, unix.EINVAL)
	}
	prot, flags := unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE
	if f.Writable {
		prot |= unix.PROT_WRITE
	} else if f.Kind != DMABuf {
		// userfaultfd refuses shared mappings that can never be written. A private one shows the file, as no
		// page of it is ever written.
		flags = unix.MAP_PRIVATE | unix.MAP_NORESERVE
	}
	start := offset &^ (f.unit - 1)
	mem, err = unix.Mmap(fd, int64(start), int(whole(end, f.unit)-start), prot, flags)
	if err != nil {
		return nil, 0, fail("map", ErrNotMemory, err)
	}
	if g != nil && f.Kind != DMABuf { // a dma-buf has no holes
		err = g.register(mem)
	}
	if err != nil {
		_ = Unmap(mem)
		return nil, 0, err
	}
	return mem, offset - start, nil
}

// whole rounds n up to whole units.
func whole(n, unit uint64) uint64 { return (n + unit - 1) &^ (unit - 1) }
