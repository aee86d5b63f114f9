package server

import (
	"cmp"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// maxSpace bounds the size of a space, which costs address space only.
const maxSpace = 16 << 30

// space is the memory that the daemon and one context share: a memfd in which each ring
// has its place, so that a client maps a ring by mapping the memfd at the ring's offset.
// It is sparse, of its final size, and mapped here in one piece: mappings of a process are
// few, rings many. The client can write anywhere in it, make holes in it, and fill what is
// nobody's; its size is sealed, and so are the seals.
type space struct {
	fd   int
	data []byte

	mu    sync.Mutex      // the shard gives places back
	free  []extent        // in order, none empty, none that touch
	warm  map[uint64]bool // pages of free, by number, that have their memory still, which is zero
	taken int64           // bytes
	refs  int             // the client's, and one for each place
	over  bool            // no ring is to come
}

// extent is a part of a space.
type extent struct{ offset, size uint64 }

func newSpace(size int64) (*space, error) {
	fd, data, err := shm.New("roced-context", size, shm.SealSize|unix.F_SEAL_SEAL)
	if err != nil {
		return nil, err
	}
	// A dump of the daemon's memory has no use for it.
	_ = unix.Madvise(data, unix.MADV_DONTDUMP)
	return &space{fd: fd, data: data, free: []extent{{0, uint64(size)}}, warm: map[uint64]bool{}, refs: 1}, nil
}

// page is the unit of places: a kernel's page, which may be larger than shm.PageSize.
var page = uint64(os.Getpagesize())

// whole rounds a size up to whole pages.
func whole(size uint64) uint64 { return (size + page - 1) &^ (page - 1) }

// take finds a place for size bytes; ok is false if there is none. Low places go first,
// since 32-bit programs cannot name all.
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

// end says that no ring is to come. Those there are keep what is in them: a program whose
// daemon ends may look into its completion queues once more, and would take zeros for
// completions.
func (s *space) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// Bounds of what a space keeps of the memory of small places that are free, for those to come: the kernel
// takes longer to take memory and to give it than the rest of making a queue pair takes. It counts as what the
// client has touched without having it.
const (
	warmPlace = 32 << 10
	warmPages = 64
)

// give takes a place back, with its memory: the next ring there finds zeros.
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

// cool frees the memory that is kept for places to come.
func (s *space) cool() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.warm {
		s.punch(extent{p * page, page})
	}
	clear(s.warm)
}

// punch frees the memory of a part.
func (s *space) punch(e extent) {
	_ = unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(e.offset), int64(e.size))
}

// join makes one of the free parts i and i+1 if they touch.
func (s *space) join(i int) {
	if a, b := s.free[i], s.free[i+1]; a.offset+a.size == b.offset {
		s.free[i].size += b.size
		s.free = slices.Delete(s.free, i+1, i+2)
	}
}

// release gives up a reference; the last one ends the space.
func (s *space) release() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if last {
		_ = shm.Unmap(s.data) // cannot fail for a mapping that we made
		_ = unix.Close(s.fd)
	}
}

// excess is the memory that the client has touched in the space beyond the size of all
// places in it.
func (s *space) excess() int64 {
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, st.Blocks*512-s.taken)
}
