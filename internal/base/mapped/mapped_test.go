package mapped

import (
	"bytes"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// halfGone returns two pages, the second of which cannot be accessed.
func halfGone(t *testing.T) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for i := range mem {
		mem[i] = 7
	}
	if err := unix.Mprotect(mem[pageSize:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return mem
}

func TestMissingPage(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	mem := halfGone(t)
	for _, c := range []struct {
		from, to int
		ok       bool
	}{{0, 0, true}, {0, 1, true}, {0, pageSize, true}, {5, pageSize + 1, false}, {pageSize, pageSize + 1, false}, {0, 2 * pageSize, false}} {
		part := mem[c.from:c.to]
		if got := Present(part); got != c.ok {
			t.Errorf("[%d, %d): present %v", c.from, c.to, got)
		}
		if got := Copy(part, make([]byte, len(part))); got != c.ok {
			t.Errorf("[%d, %d): copied to %v", c.from, c.to, got)
		}
		if got := Copy(make([]byte, len(part)), part); got != c.ok {
			t.Errorf("[%d, %d): copied from %v", c.from, c.to, got)
		}
	}
}

// TestAppend: no old content of the buffer takes the place of a missing page.
func TestAppend(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	mem := halfGone(t)
	old := bytes.Repeat([]byte{9}, 4*pageSize)
	if got := Append(old[:2], mem[:3]); !bytes.Equal(got, []byte{9, 9, 7, 7, 7}) {
		t.Errorf("%v", got)
	}
	want := append([]byte{9}, bytes.Repeat([]byte{7}, pageSize)...)
	want = append(want, make([]byte, pageSize)...)
	if got := Append(old[:1], mem); !bytes.Equal(got, want) {
		t.Error("there are bytes other than zeros")
	}
}

// TestOtherPanics: only faults are handled.
func TestOtherPanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	var done bool
	defer Recover(&done)
	panic("other")
}
