package shm

import (
	"errors"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/mapped"
)

// blocks returns the bytes of memory that a memfd has.
func blocks(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// TestGuard: no access fills a hole, be it one from the start or a later one. Pages of the owner are accessible, also
// those that it has only allocated.
func TestGuard(t *testing.T) {
	const page, size = PageSize, 8 * PageSize
	g, err := NewGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	fd, own, err := New("roced-test", size, SealShrink)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer Unmap(own)
	mem, err := g.Map(fd, Part{size - page, page})
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(mem)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	own[page] = 1
	if err := unix.Fallocate(fd, 0, 2*page, page); err != nil {
		t.Fatal(err)
	}
	present := mem[:2*page] // pages 1 and 2 of the memfd
	if !mapped.Present(present) || !mapped.Copy(present, make([]byte, 2*page)) || own[page] != 0 {
		t.Error("pages that exist are not accessible")
	}
	refused := func(what string, hole []byte) {
		t.Helper()
		if mapped.Present(hole) || mapped.Copy(hole, make([]byte, len(hole))) || mapped.Copy(make([]byte, len(hole)), hole) {
			t.Errorf("%s: accessible", what)
		}
		null, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(null)
		if _, err := unix.Read(null, hole); !errors.Is(err, unix.EFAULT) {
			t.Errorf("%s: a system call has written to it: %v", what, err)
		}
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
		if _, err := unix.Write(pipe[1], hole); !errors.Is(err, unix.EFAULT) {
			t.Errorf("%s: a system call has read it: %v", what, err)
		}
	}
	refused("a hole", mem[3*page:4*page])
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, page, page); err != nil {
		t.Fatal(err)
	}
	refused("a punched hole", mem[:page])
	if n := blocks(t, fd); n != page {
		t.Errorf("the memfd has %d bytes, want %d", n, page)
	}
	own[page] = 7
	if got := make([]byte, page); !mapped.Copy(got, mem[:page]) || got[0] != 7 {
		t.Error("a page that its owner has filled again is not accessible")
	}
}

// TestNoGuard: a nil Guard maps without protection.
func TestNoGuard(t *testing.T) {
	fd, own, err := New("roced-test", PageSize, SealShrink)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer Unmap(own)
	mem, err := (*Guard)(nil).Map(fd, Part{PageSize, 0})
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(mem)
	if mem[0] != 0 || blocks(t, fd) != PageSize {
		t.Error("an access to a hole has not filled it")
	}
}
