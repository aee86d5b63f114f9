// Package withheld makes a file that blocks its users until a test releases it. The file is on a file system in user
// space (FUSE), whose server is the test. Either accesses to the first page block, or closes of the file.
package withheld

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a file of Pages pages, full of the byte 7.
type File struct {
	Path string

	dir      string
	fd       int
	closes   bool          // closes block, not accesses
	waited   chan struct{} // closed when a thread waits
	once     sync.Once
	released chan struct{}
	served   sync.WaitGroup
}

// Pages is the size of the file in pages.
const Pages = 4

const pageSize = 4096

// New mounts a file system with a file whose first page blocks. It skips the test if it cannot mount.
func New(t testing.TB) *File {
	t.Helper()
	return mount(t, false)
}

// Unclosable mounts a file system with a file whose closes block, and opens the file. It skips the test if it cannot
// mount.
func Unclosable(t testing.TB) (f *File, fd int) {
	t.Helper()
	f = mount(t, true)
	fd, err := unix.Open(f.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Release()
		unix.Close(fd)
	})
	return f, fd
}

func mount(t testing.TB, closes bool) *File {
	t.Helper()
	f := &File{dir: t.TempDir(), closes: closes, waited: make(chan struct{}), released: make(chan struct{})}
	f.Path = filepath.Join(f.dir, "file")
	var err error
	if f.fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Skip("no FUSE here:", err)
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", f.fd)
	if err := unix.Mount("withheld", f.dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		unix.Close(f.fd)
		t.Skip("a FUSE file system cannot be mounted:", err)
	}
	f.served.Go(f.serve)
	t.Cleanup(func() {
		f.Release()
		if err := unix.Unmount(f.dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		f.served.Wait()
		unix.Close(f.fd)
	})
	return f
}

// mapEnv makes a test binary map the file that its value names.
const mapEnv = "ROCED_TEST_WITHHELD"

// Main is the program that Program runs. A package that uses it calls Main first in its TestMain.
func Main() {
	path := os.Getenv(mapEnv)
	if path == "" {
		return
	}
	mem, err := Map(path)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
	os.Exit(0)
}

// Map maps the file writable. Writes do not reach it.
func Map(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return unix.Mmap(int(file.Fd()), 0, Pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
}

// Program starts another process that maps the file, and returns its PID and the address. It must be another process: a
// thread that waits for a page blocks all changes of its address space.
func (f *File) Program(t testing.TB) (pid int, addr uint64) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), mapEnv+"="+f.Path)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Release()
		in.Close()
		_ = c.Wait()
	})
	if _, err := fmt.Fscan(out, &addr); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid, addr
}

// Waited returns a channel that is closed when a thread waits for the page or for a close.
func (f *File) Waited() <-chan struct{} { return f.waited }

// Release ends all waiting.
func (f *File) Release() {
	select {
	case <-f.released:
	default:
		close(f.released)
	}
}

// Operations of FUSE (linux/fuse.h).
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opInterrupt   = 36
	opBatchForget = 42
)

var native = binary.NativeEndian

// serve answers the kernel until the file system is unmounted.
func (f *File) serve() {
	b := make([]byte, 1<<17+4096)
	for {
		n, err := unix.Read(f.fd, b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		op, unique, node := native.Uint32(b[4:]), native.Uint64(b[8:]), native.Uint64(b[16:])
		switch op {
		case opForget, opBatchForget, opInterrupt: // these requests have no answer
		case opFlush:
			f.served.Go(func() { f.flush(unique) })
		case opRead:
			off, size := native.Uint64(b[48:]), native.Uint32(b[56:])
			f.served.Go(func() { f.read(unique, off, size) })
		default:
			f.answer(unique, body(op, node))
		}
	}
}

// read answers a READ. It answers a READ of the first page after the release.
func (f *File) read(unique, off uint64, size uint32) {
	if off < pageSize && !f.closes {
		f.wait()
	}
	data := make([]byte, min(uint64(size), Pages*pageSize-min(off, Pages*pageSize)))
	for i := range data {
		data[i] = 7
	}
	f.answer(unique, data)
}

// flush answers a FLUSH, which precedes each close.
func (f *File) flush(unique uint64) {
	if f.closes {
		f.wait()
	}
	f.answer(unique, []byte{})
}

func (f *File) wait() {
	f.once.Do(func() { close(f.waited) })
	<-f.released
}

// body returns the answer to the other operations. nil means ENOSYS.
func body(op uint32, node uint64) []byte {
	switch op {
	case opInit: // version 7.31, no flags, no readahead
		b := make([]byte, 64)
		native.PutUint32(b, 7)
		native.PutUint32(b[4:], 31)
		native.PutUint32(b[20:], pageSize)
		return b
	case opLookup:
		b := make([]byte, 40)
		native.PutUint64(b, 2)
		return append(b, attr(2)...)
	case opGetattr:
		return append(make([]byte, 16), attr(node)...)
	case opOpen, opOpendir:
		return make([]byte, 16)
	case opRelease:
		return []byte{}
	}
	return nil
}

// attr describes the root (1) or the file (2).
func attr(node uint64) []byte {
	b := make([]byte, 88)
	native.PutUint64(b, node)
	mode := uint32(unix.S_IFDIR | 0o755)
	if node == 2 {
		native.PutUint64(b[8:], Pages*pageSize)
		mode = unix.S_IFREG | 0o644
	}
	native.PutUint32(b[60:], mode)
	native.PutUint32(b[64:], 1)
	return b
}

func (f *File) answer(unique uint64, body []byte) {
	h := make([]byte, 16, 16+len(body))
	if body == nil {
		errno := -int32(unix.ENOSYS)
		native.PutUint32(h[4:], uint32(errno))
	}
	native.PutUint64(h[8:], unique)
	h = append(h, body...)
	native.PutUint32(h, uint32(len(h)))
	_, _ = unix.Write(f.fd, h) // a failure means that the requester has gone
}
