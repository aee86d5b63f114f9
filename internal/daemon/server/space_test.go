package server

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// TestSpaceEnds checks that rings keep their content after the client disconnects, which may be because the daemon
// ends. Programs then read no zeros as completions.
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

// TestSpace allocates and frees places in random order. They never overlap and their memory reads as zeros. In the
// end one free extent remains.
func TestSpace(t *testing.T) {
	const size = 256 * shm.PageSize
	rapid.Check(t, func(t *rapid.T) {
		s, err := newSpace(size)
		if err != nil {
			t.Fatal(err)
		}
		defer s.release()
		var used [256]bool
		var places []extent
		give := func(i int) {
			e := places[i]
			places = append(places[:i], places[i+1:]...)
			for p := e.offset; p < e.offset+e.size; p += shm.PageSize {
				if used[p/shm.PageSize] = false; s.data[p] != 1 {
					t.Fatalf("page %d has been cleared while it was used", p/shm.PageSize)
				}
			}
			s.give(e)
			if n := len(s.warm); n > warmPages || s.excess() > int64(n)*shm.PageSize {
				t.Fatalf("%d bytes are kept, in %d pages", s.excess(), n)
			}
		}
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			if len(places) > 0 && rapid.Bool().Draw(t, "give") {
				give(rapid.IntRange(0, len(places)-1).Draw(t, "place"))
				continue
			}
			if rapid.IntRange(0, 9).Draw(t, "cool") == 0 {
				s.cool()
			}
			e, ok := s.take(rapid.IntRange(1, rapid.SampledFrom([]int{4 * shm.PageSize, size / 4}).Draw(t, "most")).Draw(t, "size"))
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
		s.cool()
		if len(s.free) != 1 || s.free[0] != (extent{0, size}) || s.taken != 0 || s.excess() != 0 {
			t.Fatalf("left: %+v, %d taken, excess %d", s.free, s.taken, s.excess())
		}
	})
}

// TestWarmPlaces checks that the space keeps the memory of small freed places, zeroed. It frees the memory of large
// places, and all memory when the client would exceed its limit.
func TestWarmPlaces(t *testing.T) {
	s, err := newSpace(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	for _, c := range []struct {
		size int
		kept int64
	}{{2 * shm.PageSize, 2 * shm.PageSize}, {warmPlace, warmPlace}, {warmPlace + 1, 0}, {1, shm.PageSize}} {
		e, ok := s.take(c.size)
		if !ok {
			t.Fatal("no place")
		}
		place := s.data[e.offset:][:e.size]
		for i := range place {
			place[i] = 1
		}
		s.give(e)
		if got := s.excess(); got != c.kept {
			t.Errorf("%d bytes: %d are kept, not %d", c.size, got, c.kept)
		}
		if slices.Max(place) != 0 { // reading allocates memory for holes
			t.Errorf("%d bytes: not zero", c.size)
		}
		if c.kept == 0 {
			s.punch(e)
		}
	}
	if s.cool(); s.excess() != 0 {
		t.Errorf("%d bytes are kept", s.excess())
	}
}

// TestWarmQuota checks that memory kept for new rings does not reduce the client's limit.
func TestWarmQuota(t *testing.T) {
	l := testLimits
	l.Memory = 1 << 20
	h := pair(t, l)[0]
	e := newEndpoint(t, h)
	for range 4 {
		resp, _ := e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
			MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.RC)})
		e.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: word(resp, 0)})
	}
	var c *client
	for c = range h.srv.clients {
	}
	if c.space.excess() == 0 {
		t.Fatal("nothing is kept")
	}
	rest := l.Memory - c.used.Load()
	fd, err := shm.Create("rest", rest, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, _, err := e.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: 1 << 30, Length: uint64(rest)}); err != nil {
		t.Errorf("%d bytes: %v", rest, err)
	}
}

// TestSpaceIsSealed tries to change the size and the seals as a client.
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

// TestOneMapping checks that rings cost the daemon no additional mappings.
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

// TestSpaceQuota fills the unused part of the space. That memory counts against the client's limit until the client
// frees it.
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

// TestHoles punches holes into all shared memory of a client during traffic. The zeros affect no other client.
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
		_ = stage(other.sq, qp.WRWrite, memBase, peer.key, qp.SGE{Addr: memBase, Length: 8, LKey: other.key})
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
