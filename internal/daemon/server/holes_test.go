package server

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// holed is a region in a memfd of its own, which lies at holedBase.
type holed struct {
	t   testing.TB
	fd  int
	key uint32
	mem []byte
}

const (
	holedBase = 1 << 40
	holedSize = 64 << 10
)

// holed registers a memfd without any pages.
func (e *endpoint) holed() *holed {
	e.t.Helper()
	fd, mem, err := shm.New("holed", holedSize, shm.SealShrink)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		unix.Close(fd)
		_ = shm.Unmap(mem)
	})
	if _, _, err := e.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: holedBase, Length: holedSize}); err != nil {
		e.t.Fatal(err)
	}
	resp, _ := e.must(uverbs.CmdRegMR, uverbs.RegMR{Start: holedBase, Length: holedSize, HCAVA: holedBase, PDHandle: e.pd, AccessFlags: 15})
	return &holed{e.t, fd, word(resp, 1), mem}
}

// punch frees n bytes of pages from offset on.
func (h *holed) punch(offset, n int64) {
	if err := unix.Fallocate(h.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, n); err != nil {
		h.t.Error(err)
	}
}

// bytes returns the size of the memfd's pages.
func (h *holed) bytes() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		h.t.Error(err)
	}
	return st.Blocks * 512
}

// TestHolesInMemory accesses memory that a client has not allocated, or has freed after the registration. The request fails, and
// the daemon allocates nothing in place of the client. Queue pairs of others continue.
func TestHolesInMemory(t *testing.T) {
	hosts := pair(t, testLimits)
	a, b := connected(t, hosts)
	for _, c := range []struct {
		name string
		op   qp.WROpcode
		here bool // the hole is on the side of the requester
		n    uint32
		want qp.Status
	}{
		{"WRITE to it", qp.WRWrite, false, 1, qp.StatusRemAccessErr},
		{"long WRITE to it", qp.WRWrite, false, 3 * 4096, qp.StatusRemAccessErr},
		{"READ of it", qp.WRRead, false, 3 * 4096, qp.StatusRemAccessErr},
		{"short WRITE from it", qp.WRWrite, true, 1, qp.StatusLocProtErr},
		{"WRITE from it", qp.WRWrite, true, 3 * 4096, qp.StatusLocProtErr},
		{"READ to it", qp.WRRead, true, 3 * 4096, qp.StatusLocProtErr},
	} {
		for _, later := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				from, to := connected(t, hosts)
				side := to
				if c.here {
					side = from
				}
				h := side.holed()
				transfer := func(at uint64) qp.Status {
					if c.here {
						return from.transfer(c.op, holedBase+at, h.key, memBase, to.key, c.n)
					}
					return from.transfer(c.op, memBase, from.key, holedBase+at, h.key, c.n)
				}
				const first = 2 * 4096 // the requests hit the page before the hole, too
				if later {
					for i := range h.mem {
						h.mem[i] = 7
					}
					if s := transfer(first); s != qp.StatusSuccess {
						t.Fatalf("before there is a hole: status %d", s)
					}
					h.punch(first, holedSize-first)
				} else if err := shm.Allocate(h.fd, 0, first); err != nil {
					t.Fatal(err)
				}
				at := uint64(first - 4096)
				if c.n == 1 {
					at = first
				}
				if s := transfer(at); s != c.want {
					t.Errorf("status %d, want %d", s, c.want)
				}
				if n := h.bytes(); n != first {
					t.Errorf("the memfd has %d bytes, the client has allocated %d", n, first)
				}
				from.conn.Close()
				to.conn.Close()
			})
		}
	}
	a.mem[0] = 1
	if s := a.transfer(qp.WRWrite, memBase, a.key, memBase, b.key, memSize); s != qp.StatusSuccess || b.mem[0] != 1 {
		t.Errorf("another queue pair: status %d", s)
	}
	for i, h := range hosts {
		if text := h.log.String(); !strings.Contains(text, "are a hole of the program's memfd") {
			t.Errorf("NIC %d says nothing: %s", i, text)
		}
	}
}

// TestRacingHoles frees and allocates pages while the NIC reads and writes them. Nothing disturbs the loop, or the WRITEs
// of another client.
func TestRacingHoles(t *testing.T) {
	limits := testLimits
	limits.Connections = 64
	hosts := pair(t, limits)
	a, b := connected(t, hosts)
	var all sync.WaitGroup
	var stop atomic.Bool
	racer := func(h *holed) {
		all.Go(func() {
			for i := int64(0); !stop.Load(); i++ {
				h.punch(i*4096%holedSize, 4096)
				if err := shm.Allocate(h.fd, 0, holedSize); err != nil {
					t.Error(err)
				}
			}
		})
	}
	statuses := map[qp.Status]int{}
	attack := func() {
		from, to := connected(t, hosts)
		src, dst := from.holed(), to.holed()
		for _, h := range []*holed{src, dst} {
			if err := shm.Allocate(h.fd, 0, holedSize); err != nil {
				t.Fatal(err)
			}
		}
		stop.Store(false)
		racer(src)
		racer(dst)
		for i := 0; ; i++ {
			op := []qp.WROpcode{qp.WRWrite, qp.WRRead}[i%2]
			s := from.transfer(op, holedBase, src.key, holedBase, dst.key, holedSize)
			if statuses[s]++; s != qp.StatusSuccess {
				break
			}
		}
		from.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: from.qp})
		stop.Store(true)
		all.Wait()
		from.conn.Close()
		to.conn.Close()
	}
	for i, end := byte(0), time.Now().Add(time.Second); i < 8 || time.Now().Before(end); i++ {
		attack()
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

// noMemFaults checks that no memory fault has reached the loops of the hosts.
func noMemFaults(t *testing.T, hosts [2]*host) {
	t.Helper()
	for _, h := range hosts {
		if st, err := h.shard.Stats(context.Background()); err != nil || st.MemFaults != 0 {
			t.Errorf("%d faults reached the loop, %v", st.MemFaults, err)
		}
	}
}
