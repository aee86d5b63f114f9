package verbs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// TestRingsShareMappings: rings share windows, which stay mapped. A ring across two windows has its own mapping,
// unmapped with the ring.
func TestRingsShareMappings(t *testing.T) {
	const size = 2*window + 3*shm.PageSize
	fd, err := shm.Create("rings-test", size, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	f := newSharedFile()
	f.fd = fd
	defer f.close()
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	mappings := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "memfd:rings-test")
	}
	for _, c := range []struct {
		offset uint64
		size   uint32
		during int
		after  int
	}{
		{0, 1, 1, 1},
		{3 * shm.PageSize, 2 * shm.PageSize, 1, 1},
		{window - shm.PageSize, shm.PageSize, 1, 1},
		{window - shm.PageSize, 2 * shm.PageSize, 2, 1},
		{2 * window, 3 * shm.PageSize, 2, 2},
		{shm.PageSize, 2 * window, 3, 2},
	} {
		mem, err := f.mmap(c.offset, c.size)
		if err != nil || len(mem) != int(c.size) || cap(mem) != int(c.size) {
			t.Fatalf("%+v: %d bytes, %v", c, len(mem), err)
		}
		mem[len(mem)-1] = 7
		var b [1]byte
		if n, err := unix.Pread(fd, b[:], int64(c.offset)+int64(c.size)-1); n != 1 || b[0] != 7 {
			t.Errorf("%+v: another place, %v", c, err)
		}
		if n := mappings(); n != c.during {
			t.Errorf("%+v: %d mappings", c, n)
		}
		if f.unmap(mem); mappings() != c.after {
			t.Errorf("%+v: %d mappings afterwards", c, mappings())
		}
	}
	for _, c := range [][2]uint64{{0, 0}, {size, 1}, {size - shm.PageSize, 2 * shm.PageSize}, {1, 1}} {
		if _, err := f.mmap(c[0], uint32(c[1])); err == nil {
			t.Errorf("%d bytes at %d are mapped", c[1], c[0])
		}
	}
	if f.close(); mappings() != 0 {
		t.Errorf("%d mappings are left", mappings())
	}
}
