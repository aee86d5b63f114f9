package server

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// private allocates memory that the process does not share with the daemon, and registers it as a region. All
// clients of the tests are in this one process.
func (e *endpoint) private(pages int, access uint32) (mem []byte, addr uint64, mr, key uint32) {
	e.t.Helper()
	return e.register(-1, pages, unix.MAP_PRIVATE|unix.MAP_ANON, access)
}

func (e *endpoint) register(fd, pages, flags int, access uint32) (mem []byte, addr uint64, mr, key uint32) {
	e.t.Helper()
	mem, err := unix.Mmap(fd, 0, pages*4096, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { unix.Munmap(mem) })
	addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	resp, _ := e.must(uverbs.CmdRegMR, uverbs.RegMR{Start: addr, Length: uint64(len(mem)), HCAVA: addr, PDHandle: e.pd, AccessFlags: access})
	return mem, addr, word(resp, 0), word(resp, 1)
}

// transfer posts a request of n bytes and returns its completion status.
func (e *endpoint) transfer(op qp.WROpcode, addr uint64, lkey uint32, to uint64, rkey, n uint32) qp.Status {
	e.t.Helper()
	e.post(op, addr, lkey, to, rkey, n)
	return e.completion().Status
}

// post posts a request of n bytes.
func (e *endpoint) post(op qp.WROpcode, addr uint64, lkey uint32, to uint64, rkey, n uint32) {
	e.t.Helper()
	if err := stage(e.sq, op, to, rkey, qp.SGE{Addr: addr, Length: n, LKey: lkey}); err != nil {
		e.t.Fatal(err)
	}
	e.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: e.qp})
}

func TestDistantMemory(t *testing.T) {
	t.Run("by the NIC", func(t *testing.T) { testDistant(t, pair(t, testLimits)) })
	t.Run("by a worker", func(t *testing.T) { testDistant(t, distrust(t, testLimits)) })
}

func testDistant(t *testing.T, hosts [2]*host) {
	a, b := connected(t, hosts)
	const pages, n = 40, 40*4096 - 100
	src, from, _, lkey := a.private(pages, 7)
	dst, to, _, rkey := b.private(pages, 7)
	for i := range src {
		src[i] = byte(i * 7 >> 3)
	}
	if s := a.transfer(qp.WRWrite, from+50, lkey, to+30, rkey, n); s != qp.StatusSuccess || !bytes.Equal(src[50:50+n], dst[30:30+n]) {
		t.Errorf("WRITE: status %d, or the data differ", s)
	}
	if dst[29] != 0 || dst[30+n] != 0 {
		t.Error("WRITE has written more")
	}
	for i := range dst {
		dst[i] = byte(i * 11 >> 2)
	}
	if s := a.transfer(qp.WRRead, from+3, lkey, to+77, rkey, n); s != qp.StatusSuccess || !bytes.Equal(src[3:3+n], dst[77:77+n]) {
		t.Errorf("READ: status %d, or the data differ", s)
	}
}

// TestDistantMemoryGoes truncates the file behind a region: one request fails.
func TestDistantMemoryGoes(t *testing.T) {
	t.Run("by the NIC", func(t *testing.T) { testDistantGoes(t, pair(t, testLimits)) })
	t.Run("by a worker", func(t *testing.T) { testDistantGoes(t, distrust(t, testLimits)) })
}

func testDistantGoes(t *testing.T, hosts [2]*host) {
	a, b := connected(t, hosts)
	fd, err := shm.Create("gone", 4*4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_, to, _, rkey := b.register(fd, 4, unix.MAP_SHARED, 7)
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	if s := a.transfer(qp.WRWrite, memBase, a.key, to, rkey, 8192); s != qp.StatusRemAccessErr {
		t.Errorf("status %d", s)
	}
}

func TestRegisterDistantMemory(t *testing.T) {
	e := newEndpoint(t, pair(t, testLimits)[0])
	mem, addr, mr, _ := e.private(4, 0)
	if err := unix.Mprotect(mem[2*4096:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	rereg := func(flags, access uint32, n uint64) uverbs.ReregMR {
		return uverbs.ReregMR{MRHandle: mr, Flags: flags, Start: addr, Length: n, HCAVA: addr, PDHandle: e.pd, AccessFlags: access}
	}
	const translation, rights = 1, 4
	for i, c := range []struct {
		cmd  uint32
		body any
		want error
	}{
		{uverbs.CmdRegMR, uverbs.RegMR{Start: addr, Length: 4 * 4096, HCAVA: addr, PDHandle: e.pd, AccessFlags: 1}, unix.EFAULT},
		{uverbs.CmdRegMR, uverbs.RegMR{Start: 4096, Length: 1, HCAVA: 4096, PDHandle: e.pd}, unix.EFAULT},
		{uverbs.CmdReregMR, rereg(rights, 1, 0), unix.EFAULT}, // some pages are read-only
		{uverbs.CmdReregMR, rereg(translation|rights, 1, 3*4096), unix.EFAULT},
		{uverbs.CmdReregMR, rereg(translation|rights, 1, 2*4096), nil},
		{uverbs.CmdReregMR, rereg(translation, 0, 3*4096), unix.EFAULT},
		{uverbs.CmdReregMR, rereg(rights, 0, 0), nil},
		{uverbs.CmdReregMR, rereg(translation, 0, 3*4096), nil},
		{uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: mr}, nil},
	} {
		if err := e.try(c.cmd, c.body); !errors.Is(err, c.want) {
			t.Errorf("step %d: %v, want %v", i, err, c.want)
		}
	}
}
