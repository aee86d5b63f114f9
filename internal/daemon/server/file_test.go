package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/lab/withheld"
	"roced.io/roced/qp"
)

// shared returns a memfd of holedSize bytes as a program makes it, without seals, and its memory.
func shared(t testing.TB) (fd int, mem []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, holedSize); err != nil {
		t.Fatal(err)
	}
	if mem, err = shm.Map(fd, 0, holedSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shm.Unmap(mem) })
	return fd, mem
}

// placeOf returns the source of a region at offset of a file.
func placeOf(t testing.TB, fd int, offset uint64) uverbs.FileSource {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return uverbs.FileSource{Offset: offset, Inode: st.Ino, Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
}

// regFile registers memory of a file, whose descriptors it sends.
func (u *user) regFile(reg uverbs.RegMR, place uverbs.FileSource, fds ...int) ([]byte, error) {
	resp, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 64, reg, uverbs.MRSource{Kind: uverbs.SourceFile}, place), fds)
	return resp, err
}

// holedFile registers a file without any pages at holedBase.
func (e *endpoint) holedFile() *holed {
	e.t.Helper()
	fd, mem := shared(e.t)
	resp, err := e.regFile(uverbs.RegMR{Start: holedBase, Length: holedSize, HCAVA: holedBase, PDHandle: e.pd, AccessFlags: 15}, placeOf(e.t, fd, 0), fd)
	if err != nil {
		e.t.Fatal(err)
	}
	return &holed{e.t, fd, word(resp, 1), mem}
}

// TestFileSources sends descriptors of all sorts. A refused one leaves nothing in the accounts.
func TestFileSources(t *testing.T) {
	h := distrust(t, testLimits)[0]
	u := h.connect(t)
	fd, _ := shared(t)
	other, _ := shared(t)
	ro, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ro)
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	served, err := unix.Open(withheld.New(t).Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(served)
	good := uverbs.RegMR{Start: 1 << 40, HCAVA: 1 << 50, Length: holedSize, PDHandle: u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), AccessFlags: 15}
	with := func(change func(*uverbs.RegMR)) uverbs.RegMR {
		r := good
		change(&r)
		return r
	}
	place := placeOf(t, fd, 0)
	before := h.srv.cfg.Quota.Usage()[0].Used
	for name, c := range map[string]struct {
		reg   uverbs.RegMR
		place uverbs.FileSource
		fds   []int
		want  error
	}{
		"good": {good, place, []int{fd}, nil}, "no descriptor": {good, place, nil, unix.EINVAL}, "two": {good, place, []int{fd, fd}, unix.EINVAL},
		"another file": {good, place, []int{other}, unix.ESTALE}, "another device": {good, uverbs.FileSource{Inode: place.Inode, Major: 999}, []int{fd}, unix.ESTALE},
		"read-only": {good, place, []int{ro}, unix.EACCES},
		"only read": {with(func(r *uverbs.RegMR) { r.AccessFlags = 4 }), place, []int{ro}, nil},
		"disk":      {good, placeOf(t, int(disk.Fd()), 0), []int{int(disk.Fd())}, unix.EOPNOTSUPP},
		"FUSE":      {good, place, []int{served}, unix.EOPNOTSUPP},
		"empty":     {with(func(r *uverbs.RegMR) { r.Length = 0 }), place, []int{fd}, unix.EINVAL},
		"too long":  {with(func(r *uverbs.RegMR) { r.Length++ }), place, []int{fd}, unix.EINVAL},
		"beyond":    {good, placeOf(t, fd, 4096), []int{fd}, unix.EINVAL}, "overflow": {good, placeOf(t, fd, 1<<64-4096), []int{fd}, unix.EINVAL},
		"inside a page":  {good, placeOf(t, fd, 8), []int{fd}, unix.EINVAL},
		"no right":       {with(func(r *uverbs.RegMR) { r.AccessFlags = 2 }), place, []int{fd}, unix.EINVAL},
		"the first page": {with(func(r *uverbs.RegMR) { r.Start, r.HCAVA, r.Length = 8, 8, 100 }), placeOf(t, fd, 8+8*4096), []int{fd}, nil},
	} {
		resp, err := u.regFile(c.reg, c.place, c.fds...)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err == nil {
			if err := u.try(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: word(resp, 0)}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if used := h.srv.cfg.Quota.Usage()[0].Used; used != before {
			t.Errorf("%s: %v in the account, %v before", name, used.Map(), before.Map())
		}
	}
	short := uverbs.Command(uverbs.CmdRegMR, 64, good, uverbs.MRSource{Kind: uverbs.SourceFile}, uint64(0))
	if _, _, err := u.conn.Call(short, []int{fd}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("half a place: %v", err)
	}
}

// TestFileQuota registers more of a file than the limits allow. Several regions of a file count several times.
func TestFileQuota(t *testing.T) {
	l := testLimits
	l.Memory = memSize + 2*holedSize + 4096
	u := pair(t, l)[0].connect(t)
	fd, _ := shared(t)
	reg := uverbs.RegMR{Start: 1 << 40, HCAVA: 1 << 40, Length: holedSize, PDHandle: u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), AccessFlags: 15}
	for i, want := range []error{nil, nil, unix.ENOMEM} {
		if _, err := u.regFile(reg, placeOf(t, fd, 0), fd); !errors.Is(err, want) {
			t.Errorf("region %d: %v, want %v", i, err, want)
		}
	}
}

// TestFileRereg demands a right that the file lacks, and moves a region from a file to another one.
func TestFileRereg(t *testing.T) {
	u := pair(t, testLimits)[0].connect(t)
	fd, _ := shared(t)
	other, _ := shared(t)
	if err := shm.Seal(fd, unix.F_SEAL_FUTURE_WRITE); err != nil {
		t.Fatal(err)
	}
	reg := uverbs.RegMR{Start: 1 << 40, HCAVA: 1 << 40, Length: 4096, PDHandle: u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), AccessFlags: 4}
	resp, err := u.regFile(reg, placeOf(t, fd, 0), fd)
	if err != nil {
		t.Fatal(err)
	}
	const translation, access = 1, 4
	in := uverbs.ReregMR{MRHandle: word(resp, 0), Flags: access, AccessFlags: 15}
	if err := u.try(uverbs.CmdReregMR, in); !errors.Is(err, unix.EACCES) {
		t.Errorf("more rights: %v", err)
	}
	in.Flags, in.Start, in.HCAVA, in.Length = translation|access, 1<<40, 1<<40, 8192
	_, _, err = u.conn.Call(uverbs.Command(uverbs.CmdReregMR, 64, in, uverbs.MRSource{Kind: uverbs.SourceFile}, placeOf(t, other, 0)), []int{other})
	if err != nil {
		t.Errorf("another file: %v", err)
	}
}

// TestFileDirect: the shard never ends the mapping of a file, which could free a large one.
func TestFileDirect(t *testing.T) {
	u := pair(t, testLimits)[0].connect(t)
	fd, _ := shared(t)
	reg := uverbs.RegMR{Start: 1 << 40, HCAVA: 1 << 40, Length: 4096, PDHandle: u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), AccessFlags: 15}
	d := u.director()
	if _, errno := d.call(uverbs.CmdRegMR, reg, uverbs.MRSource{Kind: uverbs.SourceFile}, placeOf(t, fd, 0)); errno != unix.EINVAL {
		t.Errorf("without a descriptor: %v", errno)
	}
	resp, err := u.regFile(reg, placeOf(t, fd, 0), fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, errno := d.call(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: word(resp, 0)}); errno != unix.EAGAIN {
		t.Errorf("deregistration: %v", errno)
	}
}

// TestDevicesOfDMABufs: dma-bufs whose accesses may wait are for users who may stop the daemon.
func TestDevicesOfDMABufs(t *testing.T) {
	for _, strict := range []bool{false, true} {
		hosts := pairWith(t, Config{Limits: testLimits, Distrust: strict})
		hosts[0].connect(t)
		hosts[0].srv.mu.Lock()
		for c := range hosts[0].srv.clients {
			for _, f := range []struct {
				file shm.File
				want bool
			}{{shm.File{Kind: shm.Tmpfs}, true}, {shm.File{Kind: shm.DMABuf, Exporter: "udmabuf"}, true}, {shm.File{Kind: shm.DMABuf, Exporter: "i915"}, !strict}} {
				if may := c.mayWait(&f.file); may != f.want {
					t.Errorf("%+v: %v", f.file, may)
				}
			}
		}
		hosts[0].srv.mu.Unlock()
	}
}

// TestLostPagesOfFiles accesses pages that a file has not, or has lost after the registration. The request fails, and the daemon
// allocates nothing in place of the client.
func TestLostPagesOfFiles(t *testing.T) {
	hosts := pair(t, testLimits)
	lose := map[string]func(h *holed) error{
		"hole":     func(h *holed) error { return unix.Ftruncate(h.fd, holedSize) },
		"punch":    func(h *holed) error { h.punch(4096, holedSize-4096); return nil },
		"truncate": func(h *holed) error { return unix.Ftruncate(h.fd, 4096) },
	}
	for name, lost := range lose {
		for _, op := range []qp.WROpcode{qp.WRWrite, qp.WRRead} {
			for _, here := range []bool{false, true} {
				from, to := connected(t, hosts)
				side, want := to, qp.StatusRemAccessErr
				if here {
					side, want = from, qp.StatusLocProtErr
				}
				h := side.holedFile()
				transfer := func(n uint32) qp.Status {
					if here {
						return from.transfer(op, holedBase, h.key, memBase, to.key, n)
					}
					return from.transfer(op, memBase, from.key, holedBase, h.key, n)
				}
				h.mem[0] = 1
				if name != "hole" {
					copy(h.mem, bytes.Repeat([]byte{7}, holedSize))
					if s := transfer(holedSize); s != qp.StatusSuccess {
						t.Fatalf("%s: before, status %d", name, s)
					}
				}
				if err := lost(h); err != nil {
					t.Fatal(err)
				}
				if s := transfer(4096); s != qp.StatusSuccess {
					t.Errorf("%s: the rest, status %d", name, s)
				}
				if s := transfer(2 * 4096); s != want {
					t.Errorf("%s, %v, here %v: status %d, want %d", name, op, here, s, want)
				}
				if n := h.bytes(); n != 4096 {
					t.Errorf("%s: the file has %d bytes", name, n)
				}
				from.conn.Close()
				to.conn.Close()
			}
		}
	}
	if text := hosts[0].log.String(); !strings.Contains(text, "of a tmpfs file are missing") {
		t.Errorf("the log does not explain it: %s", text)
	}
}

// TestRacingFiles truncates files, punches holes into them and fills them while the NIC reads and writes them. Nothing
// disturbs the loop, or the WRITEs of another client.
func TestRacingFiles(t *testing.T) {
	limits := testLimits
	limits.Connections = 64
	hosts := pair(t, limits)
	a, b := connected(t, hosts)
	var all sync.WaitGroup
	var stop atomic.Bool
	racer := func(h *holed) {
		all.Go(func() {
			for i := int64(0); !stop.Load(); i++ {
				if i%3 == 0 {
					h.punch(i*4096%holedSize, 4096)
				} else if err := unix.Ftruncate(h.fd, i*4096%holedSize); err != nil {
					t.Error(err)
				}
				if err := errors.Join(unix.Ftruncate(h.fd, holedSize), shm.Allocate(h.fd, 0, holedSize)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	statuses := map[qp.Status]int{}
	for i, end := byte(0), time.Now().Add(time.Second); i < 8 || time.Now().Before(end); i++ {
		from, to := connected(t, hosts)
		src, dst := from.holedFile(), to.holedFile()
		stop.Store(false)
		racer(src)
		racer(dst)
		for k := 0; ; k++ {
			s := from.transfer([]qp.WROpcode{qp.WRWrite, qp.WRRead}[k%2], holedBase, src.key, holedBase, dst.key, holedSize)
			if statuses[s]++; s != qp.StatusSuccess {
				break
			}
		}
		stop.Store(true)
		all.Wait()
		from.conn.Close()
		to.conn.Close()
		for k := range a.mem {
			a.mem[k] = i ^ byte(k)
		}
		if s := a.transfer(qp.WRWrite, memBase, a.key, memBase, b.key, memSize); s != qp.StatusSuccess || !bytes.Equal(a.mem, b.mem) {
			t.Fatalf("another client: status %d, or the data differ", s)
		}
	}
	t.Log(statuses)
	noMemFaults(t, hosts)
}

// TestRegionKinds reports the kinds of registered memory.
func TestRegionKinds(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	e.holedFile()
	e.private(1, 7)
	h.srv.mu.Lock()
	defer h.srv.mu.Unlock()
	for c := range h.srv.clients {
		c.mu.Lock()
		r := c.traffic.regions
		c.mu.Unlock()
		if len(r) != 3 || r["memfd"].Bytes != memSize || r["tmpfs"].Bytes != holedSize || r["copied"].Count != 1 {
			t.Errorf("%+v", r)
		}
	}
}
