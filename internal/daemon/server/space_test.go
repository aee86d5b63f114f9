package server

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"roced/internal/abi/shm"
	"roced/internal/abi/uverbs"
	"roced/qp"
)

// TestSpaceEnds: what is in a ring stays when its client goes, which may be because the daemon
// ends: its program does not find completions of zeros.
func TestSpaceEnds(t *testing.T) {
	s, err := newSpace(shm.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	e, ok := s.take(1)
	if !ok {
		t.Fatal("no place")
	}
	s.data[0] = 1
	s.end()
	s.give(e)
	if s.data[0] != 1 {
		t.Error("the ring is empty")
	}
}

// TestSpace takes and gives places in any order: none overlap, their memory reads as
// zeros, and in the end all is one free part again.
func TestSpace(t *testing.T) {
	const size = 64 * shm.PageSize
	rapid.Check(t, func(t *rapid.T) {
		s, err := newSpace(size)
		if err != nil {
			t.Fatal(err)
		}
		defer s.release()
		var used [64]bool
		var places []extent
		give := func(i int) {
			e := places[i]
			places = append(places[:i], places[i+1:]...)
			for p := e.offset; p < e.offset+e.size; p += shm.PageSize {
				used[p/shm.PageSize] = false
			}
			s.give(e)
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			if len(places) > 0 && rapid.Bool().Draw(t, "give") {
				give(rapid.IntRange(0, len(places)-1).Draw(t, "place"))
				continue
			}
			e, ok := s.take(rapid.IntRange(1, size/4).Draw(t, "size"))
			if !ok {
				continue
			}
			for p := e.offset; p < e.offset+e.size; p += shm.PageSize {
				if used[p/shm.PageSize] {
					t.Fatalf("page %d is taken twice", p/shm.PageSize)
				}
				if used[p/shm.PageSize] = true; s.data[p] != 0 {
					t.Fatalf("page %d is not zero", p/shm.PageSize)
				}
				s.data[p] = 1
			}
			places = append(places, e)
		}
		for len(places) > 0 {
			give(0)
		}
		if len(s.free) != 1 || s.free[0] != (extent{0, size}) || s.taken != 0 || s.excess() != 0 {
			t.Fatalf("left: %+v, %d taken, excess %d", s.free, s.taken, s.excess())
		}
	})
}

// TestSpaceIsSealed tries what a client could do to the size and the seals.
func TestSpaceIsSealed(t *testing.T) {
	u := pair(t, testLimits)[0].connect(t)
	for name, try := range map[string]func() error{
		"shrink": func() error { return unix.Ftruncate(u.file, 0) },
		"grow":   func() error { return unix.Ftruncate(u.file, 1<<40) },
		"seal": func() error {
			_, err := unix.FcntlInt(uintptr(u.file), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
			return err
		},
		"write far": func() error { _, err := unix.Pwrite(u.file, []byte{1}, 1<<40); return err },
	} {
		if err := try(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOneMapping checks that rings cost the daemon no mappings of their own.
func TestOneMapping(t *testing.T) {
	e := newEndpoint(t, pair(t, testLimits)[0])
	count := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(maps), "memfd:roced-context")
	}
	before := count()
	for range 50 {
		e.handle(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
			MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.RC)})
	}
	if n := count(); n != before {
		t.Errorf("%d mappings more for 50 queue pairs", n-before)
	}
}

// TestSpaceQuota fills the space with memory that belongs to no ring: it counts against
// what the client may have, until the client frees it.
func TestSpaceQuota(t *testing.T) {
	l := testLimits
	l.Memory = 4 << 20
	u := pair(t, l)[0].connect(t)
	hoard := u.mmap(1<<20, 3<<20)
	for i := 0; i < len(hoard); i += shm.PageSize {
		hoard[i] = 1
	}
	fd, err := shm.Create("more", 1<<20, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	more := uverbs.MapMemory{Base: 1 << 30, Length: 1 << 20}
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, more); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("beside 3 MiB of 4: %v", err)
	}
	if err := unix.Fallocate(u.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1<<20, 3<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, more); err != nil {
		t.Error(err)
	}
}

// TestHoles punches holes into all that a client shares while it works: zeros harm nobody
// else.
func TestHoles(t *testing.T) {
	h := pair(t, testLimits)
	a, b := connected(t, h)
	other := newEndpoint(t, h[0])
	page, _ := other.bell()
	peer := newEndpoint(t, h[1])
	other.join(h[1].gid, peer.qpn)
	peer.join(h[0].gid, other.qpn)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 500 {
		page[rng.IntN(len(page))] = byte(i)
		for range 4 {
			at := int64(rng.IntN(64)) * shm.PageSize
			if err := unix.Fallocate(other.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, shm.PageSize); err != nil {
				t.Fatal(err)
			}
		}
		if other.sq.Stage(&qp.SendWQE{Opcode: qp.WRWrite, Length: 8, RemoteVA: memBase, RKey: peer.key,
			SGEs: []qp.SGE{{Addr: memBase, Length: 8, LKey: other.key}}}) == nil {
			other.sq.Commit()
		}
		other.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: other.qp})
	}
	other.conn.Close()
	copy(a.mem, "sane")
	a.write(b.key, 4)
	a.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp})
	if c := a.completion(); c.Status != qp.StatusSuccess || string(b.mem[:4]) != "sane" {
		t.Errorf("completion %+v", c)
	}
}
