//go:build linux

package bth

import (
	"bytes"
	"hash/crc32"
	"math/bits"
	"os"
	"slices"
	"syscall"
	"testing"
)

// TestFoldTable derives the constants from the polynomial by long division.
func TestFoldTable(t *testing.T) {
	power := func(n int) uint64 { // x^n, reflected
		r := uint32(1)
		for range n {
			carry := r >> 31
			r = r<<1 ^ carry*0x04c11db7
		}
		return uint64(bits.Reverse32(r)) << 32
	}
	for i, d := range []int{128 * 8, 32 * 8, 16 * 8} {
		if want := [2]uint64{power(d + 63), power(d - 1)}; foldTable[i] != want {
			t.Errorf("distance of %d bits: %#016x, want %#016x", d, foldTable[i], want)
		}
	}
}

// TestDetectFold: detectFold agrees with the kernel's flags of the first processor.
func TestDetectFold(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, flags, found := bytes.Cut(info, []byte("\nflags"))
	if !found {
		t.Fatal("no flags in /proc/cpuinfo")
	}
	flags, _, _ = bytes.Cut(flags, []byte("\n"))
	has := func(flag string) bool {
		return slices.ContainsFunc(bytes.Fields(flags), func(f []byte) bool { return string(f) == flag })
	}
	if want := has("avx2") && has("vpclmulqdq"); canFold != want {
		t.Errorf("canFold is %v, the kernel's flags:%s", canFold, flags)
	}
}

// TestFoldStaysInside places the data next to unreadable pages.
func TestFoldStaysInside(t *testing.T) {
	page := os.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 4*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	}()
	for _, guard := range [][]byte{m[:page], m[3*page:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	data := m[page : 3*page]
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	for n := range len(data) + 1 {
		for _, p := range [][]byte{data[:n], data[len(data)-n:]} {
			if got, want := crcUpdate(1, p), crc32.Update(1, crc32.IEEETable, p); got != want {
				t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
			}
		}
	}
}
