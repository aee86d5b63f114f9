package verbs

import (
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// window is the unit of mapping the memory of rings. All rings in a window share a mapping. The number of mappings of a
// process is limited, and a mapping costs more time than a queue pair.
const window = 1 << 20

// sharedFile is the memfd of a context, in which the daemon places rings.
type sharedFile struct {
	mu      sync.Mutex
	fd      int
	size    uint64            // sealed: it cannot shrink
	windows map[uint64][]byte // by number; mapped until the context ends
	own     map[*byte]bool    // mappings that are not part of a window
}

func newSharedFile() sharedFile {
	return sharedFile{fd: -1, windows: map[uint64][]byte{}, own: map[*byte]bool{}}
}

// check verifies that the memory cannot shrink and sets its size.
func (f *sharedFile) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	f.size = uint64(st.Size)
	return shm.Check(f.fd, shm.Part{Length: f.size})
}

// mmap maps a part of the file, until unmap.
func (f *sharedFile) mmap(offset uint64, size uint32) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size == 0 || offset > f.size || uint64(size) > f.size-offset || offset%shm.PageSize != 0 {
		return nil, ErrProtocol
	}
	if number := offset / window; number == (offset+uint64(size)-1)/window {
		w, err := f.window(number)
		if err != nil {
			return nil, err
		}
		return w[offset%window:][:size:size], nil
	}
	mem, err := shm.Map(f.fd, offset, uint64(size))
	if err == nil {
		f.own[&mem[0]] = true
	}
	return mem, err
}

// window returns a window and maps it at the first call.
func (f *sharedFile) window(number uint64) ([]byte, error) {
	if w := f.windows[number]; w != nil {
		return w, nil
	}
	w, err := shm.Map(f.fd, number*window, min(window, f.size-number*window))
	if err == nil {
		f.windows[number] = w
	}
	return w, err
}

// unmap releases memory of mmap. Do not access it afterwards: the daemon may place another ring there.
func (f *sharedFile) unmap(mem []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own[&mem[0]] {
		delete(f.own, &mem[0])
		_ = shm.Unmap(mem) // cannot fail for a mapping that we made
	}
}

// close unmaps all windows.
func (f *sharedFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.windows {
		_ = shm.Unmap(w)
	}
	f.windows = nil
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}
