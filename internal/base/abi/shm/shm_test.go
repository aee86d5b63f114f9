package shm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func closeFD(t *testing.T, fd int) {
	t.Helper()
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestNew(t *testing.T) {
	before := openFDs(t)
	fd, mem, err := New("ring", 3*PageSize, SealSize)
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %d, %v", flags, err)
	}
	if unix.Ftruncate(fd, PageSize) == nil || unix.Ftruncate(fd, 4*PageSize) == nil {
		t.Error("the size can be changed")
	}
	other, err := Map(fd, PageSize, 2*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if mem[PageSize] = 7; other[0] != 7 || len(mem) != 3*PageSize || len(other) != 2*PageSize {
		t.Error("the mappings do not share memory")
	}
	if err := errors.Join(Unmap(mem), Unmap(other)); err != nil {
		t.Error(err)
	}
	if err := Unmap(mem); err == nil {
		t.Error("unmapped twice")
	}
	closeFD(t, fd)
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestNewFails(t *testing.T) {
	before := openFDs(t)
	for _, size := range []int64{0, -1, 1 << 62} {
		if fd, mem, err := New("ring", size, SealShrink); err == nil || fd != -1 || mem != nil {
			t.Errorf("%d bytes: %d, %d, %v", size, fd, len(mem), err)
		}
	}
	if fd, err := Create("ring", -1, SealShrink); err == nil || fd != -1 {
		t.Errorf("negative size: %d, %v", fd, err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestCheck(t *testing.T) {
	fd, err := Create("mr", 4*PageSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(t, fd)
	if err := Check(fd, Part{3 * PageSize, PageSize}); err != nil {
		t.Fatal(err)
	}
	if unix.Ftruncate(fd, PageSize) == nil {
		t.Error("not sealed")
	}
	if err := unix.Ftruncate(fd, 5*PageSize); err != nil {
		t.Errorf("cannot grow: %v", err)
	}
	if err := Check(fd, Part{5 * PageSize, 0}); err != nil {
		t.Errorf("sealed already: %v", err)
	}
	for name, r := range map[string][2]uint64{
		"empty": {0, 0}, "long": {0, 5*PageSize + 1}, "offset": {PageSize, 5 * PageSize}, "beyond": {6 * PageSize, 1},
		"overflow": {PageSize, 1<<64 - PageSize}, "page": {1, 1}, "huge": {1 << 63, 1 << 63},
	} {
		var e *Error
		if err := Check(fd, Part{r[1], r[0]}); !errors.Is(err, ErrRange) || !errors.Is(err, unix.EINVAL) || !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRejects(t *testing.T) {
	open := func(fd int, err error) int {
		t.Helper()
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	sized := func(fd int) int {
		t.Helper()
		if err := unix.Ftruncate(fd, PageSize); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	mem := func() int { return sized(open(unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))) }
	sealed := func(seal int) int {
		t.Helper()
		fd := mem()
		if err := Seal(fd, seal); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for name, c := range map[string]struct {
		fd   func() int
		kind error
	}{
		"file": {func() int {
			return sized(open(unix.Open(filepath.Join(t.TempDir(), "f"), unix.O_RDWR|unix.O_CREAT, 0o600)))
		}, nil},
		"device":       {func() int { return open(unix.Open("/dev/zero", unix.O_RDWR, 0)) }, nil},
		"not sealable": {func() int { return sized(open(unix.MemfdCreate("x", unix.MFD_CLOEXEC))) }, ErrSealed},
		"read only": {func() int {
			return open(unix.Open("/proc/self/fd/"+strconv.Itoa(mem()), unix.O_RDONLY, 0))
		}, ErrReadOnly},
		"path":         {func() int { return open(unix.Open("/proc/self/fd/"+strconv.Itoa(mem()), unix.O_PATH, 0)) }, ErrReadOnly},
		"write sealed": {func() int { return sealed(unix.F_SEAL_WRITE) }, ErrReadOnly},
		"sealed seals": {func() int { return sealed(unix.F_SEAL_SEAL) }, ErrSealed},
		"closed":       {func() int { return -1 }, ErrNotMemory},
		"namespace":    {func() int { return open(unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)) }, ErrNotMemory},
		"socket": {func() int {
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			open(p[1], err)
			return open(p[0], err)
		}, ErrNotMemory},
		"huge pages": {func() int { return open(unix.MemfdCreate("x", unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)) }, ErrNotMemory},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(c.fd(), Part{PageSize, 0})
			if err == nil || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v, want %v", err, c.kind)
			}
		})
	}
}

// TestShrinkRace: memory that passes Check while its owner shrinks it has its full size.
func TestShrinkRace(t *testing.T) {
	passed := 0
	for range 2000 {
		fd, err := Create("x", PageSize, 0)
		if err != nil {
			t.Fatal(err)
		}
		shrunk := make(chan error)
		go func() { shrunk <- unix.Ftruncate(fd, 0) }()
		if Check(fd, Part{PageSize, 0}) == nil {
			passed++
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || st.Size != PageSize {
				t.Errorf("%d bytes, %v", st.Size, err)
			}
			if err := <-shrunk; !errors.Is(err, unix.EPERM) {
				t.Errorf("truncate: %v", err)
			}
		} else {
			<-shrunk
		}
		unix.Close(fd)
	}
	if passed == 0 {
		t.Error("nothing passed")
	}
}

func TestMapRejects(t *testing.T) {
	for _, r := range [][2]uint64{{0, 0}, {1, PageSize}, {1 << 63, PageSize}, {0, 1 << 60}} {
		if mem, err := Map(-1, r[0], r[1]); !errors.Is(err, ErrRange) || mem != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	if _, err := Map(-1, 0, PageSize); !errors.Is(err, unix.EBADF) {
		t.Errorf("no file: %v", err)
	}
}

func TestEventfd(t *testing.T) {
	fd, err := Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := drain(fd); ok || err != nil {
		t.Errorf("new: %v, %v", ok, err)
	}
	if n := testing.AllocsPerRun(10, func() {
		if err := Signal(fd); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if ok, err := drain(fd); !ok || err != nil {
		t.Errorf("signalled: %v, %v", ok, err)
	}
	if ok, err := drain(fd); ok || err != nil {
		t.Errorf("drained: %v, %v", ok, err)
	}
	// Signal does not block on a full counter.
	if _, err := unix.Write(fd, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := Signal(fd); err != nil {
		t.Errorf("full: %v", err)
	}
	closeFD(t, fd)
	if Signal(fd) == nil {
		t.Error("signalled nothing")
	}
}

func TestErrorText(t *testing.T) {
	for err, want := range map[error]string{
		&Error{Op: "map", Kind: ErrRange, Errno: unix.EINVAL}: "shm: range is not inside the memory: map: invalid argument",
		&Error{Op: "map", Errno: unix.ENOMEM}:                 "shm: map: cannot allocate memory",
		fail("map", nil, errors.New("x")):                     "shm: map: input/output error",
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// TestMapParts maps parts of a memfd in another order.
func TestMapParts(t *testing.T) {
	const page = PageSize
	fd, own, err := New("roced-test", 8*page, SealShrink)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer Unmap(own)
	for i := range 8 {
		own[i*page] = byte(i)
	}
	mem, err := MapParts(fd, Part{page, 5 * page}, Part{2 * page, page}, Part{page, 0})
	if err != nil {
		t.Fatal(err)
	}
	if got := []byte{mem[0], mem[page], mem[2*page], mem[3*page]}; !bytes.Equal(got, []byte{5, 1, 2, 0}) || len(mem) != 4*page {
		t.Errorf("%d bytes with the pages %v", len(mem), got)
	}
	mem[page] = 9
	if own[page] != 9 {
		t.Error("the memory is not shared")
	}
	if err := Unmap(mem); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]Part{{{page, 0}, {0, page}}, {{page, 0}, {page, 1}}, {{page, 0}, {page + 1, 0}}, {{maxMap, 0}, {page, 0}}} {
		if _, err := MapParts(fd, bad...); !errors.Is(err, ErrRange) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// drain resets a non-blocking eventfd and reports whether it was signalled.
func drain(fd int) (bool, error) {
	var b [8]byte
	_, err := unix.Read(fd, b[:])
	if err == unix.EAGAIN {
		return false, nil
	}
	return err == nil, err
}
