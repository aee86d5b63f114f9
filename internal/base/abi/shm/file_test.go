package shm

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/mapped"
)

// opened returns a descriptor, which is closed at the end of the test. It skips the test if there is none.
func opened(t *testing.T, fd int, err error) int {
	t.Helper()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// plain returns a memfd of three pages.
func plain(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	opened(t, fd, err)
	if err := unix.Ftruncate(fd, 3*PageSize); err != nil {
		t.Fatal(err)
	}
	return fd
}

// reopened returns another descriptor of the same file.
func reopened(t *testing.T, fd, mode int) int {
	t.Helper()
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), mode|unix.O_CLOEXEC, 0)
	return opened(t, fd, err)
}

func TestInspect(t *testing.T) {
	sealed := plain(t)
	if err := Seal(sealed, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	fixed := plain(t)
	if err := Seal(fixed, SealSize|unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	shmFile, err := os.CreateTemp("/dev/shm", "roced-test")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(shmFile.Name())
	defer shmFile.Close()
	for name, c := range map[string]struct {
		fd       int
		writable bool
	}{
		"memfd": {plain(t), true}, "tmpfs": {int(shmFile.Fd()), true}, "read-only": {reopened(t, plain(t), unix.O_RDONLY), false},
		"sealed against writes": {sealed, false}, "sealed size": {fixed, true},
	} {
		before, _ := unix.FcntlInt(uintptr(c.fd), unix.F_GET_SEALS, 0)
		f, err := Inspect(c.fd)
		if err != nil || f.Kind != Tmpfs || f.Writable != c.writable || f.Inode == 0 {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
		if after, _ := unix.FcntlInt(uintptr(c.fd), unix.F_GET_SEALS, 0); after != before {
			t.Errorf("%s: the seals %#x became %#x", name, before, after)
		}
	}
	huge, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_HUGETLB)
	if f, err := Inspect(opened(t, huge, err)); err != nil || f.Kind != Hugetlbfs || f.Kind.String() != "hugetlbfs" || f.unit <= PageSize {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestInspectRejects(t *testing.T) {
	open := func(path string, mode int) int {
		t.Helper()
		fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0o600)
		return opened(t, fd, err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for name, c := range map[string]struct {
		fd   int
		want error
	}{
		"closed": {-1, unix.EBADF}, "path": {open("/proc/self/fd/"+strconv.Itoa(plain(t)), unix.O_PATH), unix.EBADF},
		"write-only": {reopened(t, plain(t), unix.O_WRONLY), unix.EACCES},
		"disk":       {open(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT), unix.EOPNOTSUPP},
		"device":     {open("/dev/zero", unix.O_RDWR), unix.EOPNOTSUPP}, "folder of tmpfs": {open("/dev/shm", unix.O_RDONLY), unix.EOPNOTSUPP},
		"pipe": {pipe[0], unix.EOPNOTSUPP}, "namespace": {open("/proc/self/ns/net", unix.O_RDONLY), unix.EOPNOTSUPP},
	} {
		if _, err := Inspect(c.fd); !errors.Is(err, c.want) || !errors.Is(err, ErrNotMemory) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// guarded returns a guard.
func guarded(t *testing.T) *Guard {
	t.Helper()
	g, err := NewGuard()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func TestMapFileRange(t *testing.T) {
	g, fd := guarded(t), plain(t)
	f, err := Inspect(fd)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string][2]uint64{
		"empty": {0, 0}, "long": {0, 3*PageSize + 1}, "beyond": {3 * PageSize, 1}, "overflow": {PageSize, 1<<64 - PageSize},
		"last byte": {1<<64 - 1, 1}, "huge": {1 << 63, 1 << 63},
	} {
		if mem, _, err := g.MapFile(fd, f, r[0], r[1]); !errors.Is(err, ErrRange) || mem != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := unix.Pwrite(fd, []byte("x"), PageSize+7); err != nil {
		t.Fatal(err)
	}
	mem, lead, err := g.MapFile(fd, f, PageSize+7, PageSize)
	if err != nil || lead != 7 || len(mem) != 2*PageSize || mem[lead] != 'x' {
		t.Errorf("%d bytes, %d before: %v", len(mem), lead, err)
	}
	if err := Unmap(mem); err != nil {
		t.Error(err)
	}
}

// TestMapFileWithoutGuard: a nil Guard maps without protection. An access beyond the end of the file still fails.
func TestMapFileWithoutGuard(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	fd := plain(t)
	f, err := Inspect(fd)
	if err != nil {
		t.Fatal(err)
	}
	mem, _, err := (*Guard)(nil).MapFile(fd, f, 0, 3*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Unmap(mem) }()
	if err := unix.Ftruncate(fd, PageSize); err != nil {
		t.Fatal(err)
	}
	if !mapped.Copy(mem[:1], []byte{1}) || mapped.Present(mem[PageSize:][:1]) || blocks(t, fd) != PageSize {
		t.Error("the hole is not filled, or there is memory beyond the end")
	}
}

// TestMapFileHoles accesses pages that a file has not, or not any more. Nothing fills them.
func TestMapFileHoles(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	g := guarded(t)
	for _, mode := range []int{unix.O_RDWR, unix.O_RDONLY} {
		whole := plain(t)
		if err := Allocate(whole, 0, 2*PageSize); err != nil {
			t.Fatal(err)
		}
		fd := reopened(t, whole, mode)
		f, err := Inspect(fd)
		if err != nil {
			t.Fatal(err)
		}
		mem, _, err := g.MapFile(fd, f, 0, 3*PageSize)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = Unmap(mem) }()
		page := func(i int) []byte { return mem[i*PageSize:][:PageSize] }
		check := func(what string, have int, present ...bool) {
			t.Helper()
			for i, want := range present {
				_, err := unix.Write(eventfd(t), page(i)[:8])
				if mapped.Present(page(i)) != want || errors.Is(err, unix.EFAULT) == want {
					t.Errorf("mode %d, %s: page %d: %v", mode, what, i, err)
				}
			}
			if n := blocks(t, whole); n != int64(have)*PageSize {
				t.Errorf("mode %d, %s: the file has %d bytes", mode, what, n)
			}
		}
		check("a hole", 2, true, true, false)
		if _, err := unix.Pwrite(whole, []byte{1}, 0); err != nil || mem[0] != 1 {
			t.Errorf("mode %d: a write to the file is not seen: %v", mode, err)
		}
		if err := unix.Fallocate(whole, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, PageSize); err != nil {
			t.Fatal(err)
		}
		check("a punched hole", 1, false, true, false)
		if err := unix.Ftruncate(whole, PageSize); err != nil {
			t.Fatal(err)
		}
		check("a truncated file", 0, false, false, false)
		if mapped.Copy(page(0)[:1], []byte{1}) {
			t.Errorf("mode %d: a hole was written", mode)
		}
	}
}

// eventfd returns an eventfd, to which 8 bytes can be written.
func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := Eventfd()
	return opened(t, fd, err)
}
