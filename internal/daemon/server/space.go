package server

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// maxSpace limits the size of a space, which consumes only address space.
const maxSpace = 16 << 30

// space is the memory that the daemon and one context share: a memfd that contains each ring at its own offset.
// Clients map a ring by mapping the memfd at that offset.
//
// The memfd is sparse and has its final size. The daemon maps all of it once, because mappings per process are
// scarce and rings are many. The client can write anywhere in it, punch holes, and fill unused parts. The seals fix
// the size and further seals.
type space struct {
	fd   int
	data []byte

	mu    sync.Mutex      // needed because the shard frees places
	free  []extent        // sorted, not empty, not adjacent
	warm  map[uint64]bool // numbers of free pages that still have memory, all zero
	taken int64           // bytes
	refs  int             // one for the client, one for each place
	over  bool            // no more rings follow
}

// extent is a part of a space.
type extent struct{ offset, size uint64 }

func newSpace(size int64) (*space, error) {
	fd, data, err := shm.New("roced-context", size, shm.SealSize|unix.F_SEAL_SEAL)
	if err != nil {
		return nil, err
	}
	// Core dumps of the daemon do not need this memory.
	_ = unix.Madvise(data, unix.MADV_DONTDUMP)
	return &space{fd: fd, data: data, free: []extent{{0, uint64(size)}}, warm: map[uint64]bool{}, refs: 1}, nil
}

// page is the allocation unit: the kernel's page size, which may exceed shm.PageSize.
var page = uint64(os.Getpagesize())

// whole rounds a size up to whole pages.
func whole(size uint64) uint64 { return (size + page - 1) &^ (page - 1) }

// take allocates a place for size bytes. ok is false if there is none. It prefers low offsets, since 32-bit programs
// cannot address all of them.
func (s *space) take(size int) (e extent, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := whole(uint64(size))
	for i := range s.free {
		f := &s.free[i]
		if f.size < n {
			continue
		}
		e = extent{f.offset, n}
		f.offset, f.size = f.offset+n, f.size-n
		if f.size == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		for p := range s.warm {
			if p*page >= e.offset && p*page < e.offset+e.size {
				delete(s.warm, p)
			}
		}
		s.taken += int64(n)
		s.refs++
		return e, true
	}
	return extent{}, false
}

// end announces that no more rings follow. Freed rings then keep their content: a program may read its completion
// queues after the daemon ends, and would read zeros as completions.
func (s *space) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// Limits of the zeroed memory that a space keeps for new small places. Freeing and allocating pages in the kernel
// takes longer than the rest of the creation of a queue pair. This memory counts as pages that the client touches
// outside its rings.
const (
	warmPlace = 32 << 10
	warmPages = 64
)

// give frees a place. The next ring there starts with zeros.
func (s *space) give(e extent) {
	s.mu.Lock()
	switch first, n := e.offset/page, e.size/page; {
	case s.over:
	case e.size <= warmPlace && uint64(len(s.warm))+n <= warmPages:
		clear(s.data[e.offset:][:e.size])
		for i := range n {
			s.warm[first+i] = true
		}
	default:
		s.punch(e)
	}
	i, _ := slices.BinarySearchFunc(s.free, e.offset, func(f extent, o uint64) int { return cmp.Compare(f.offset, o) })
	s.free = slices.Insert(s.free, i, e)
	if i+1 < len(s.free) {
		s.join(i)
	}
	if i > 0 {
		s.join(i - 1)
	}
	s.taken -= int64(e.size)
	s.mu.Unlock()
	s.release()
}

// cool frees the memory that the space keeps for new places.
func (s *space) cool() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.warm {
		s.punch(extent{p * page, page})
	}
	clear(s.warm)
}

// punch frees the memory of an extent.
func (s *space) punch(e extent) {
	_ = unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(e.offset), int64(e.size))
}

// join merges the free extents i and i+1 if they are adjacent.
func (s *space) join(i int) {
	if a, b := s.free[i], s.free[i+1]; a.offset+a.size == b.offset {
		s.free[i].size += b.size
		s.free = slices.Delete(s.free, i+1, i+2)
	}
}

// release drops a reference. The last one frees the space.
func (s *space) release() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if last {
		_ = shm.Unmap(s.data) // cannot fail for a mapping of our own
		_ = unix.Close(s.fd)
	}
}

// excess returns the bytes that the client has touched in the space beyond the size of all allocated places.
func (s *space) excess() int64 {
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, st.Blocks*512-s.taken)
}
