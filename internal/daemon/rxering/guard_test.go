package rxering

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
)

// guarded returns memory for a ring with a page behind it that cannot be touched.
func guarded(t *testing.T, s rxe.Shape) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, s.Size()+os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(mem[s.Size():], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return mem[:s.Size()]
}
