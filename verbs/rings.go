package verbs

import (
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// window is the unit in which the memory of rings is mapped, once for all that are in it: mappings of a
// process are few, and to make and end one takes longer than to make a queue pair.
const window = 1 << 20

// sharedFile is the memfd of a context, in which the daemon places rings.
type sharedFile struct {
	mu      sync.Mutex
	fd      int
	size    uint64            // that it cannot fall below: it is sealed
	windows map[uint64][]byte // by number; they stay until the context ends
	own     map[*byte]bool    // mappings that are not part of a window
}

func newSharedFile() sharedFile {
	return sharedFile{fd: -1, windows: map[uint64][]byte{}, own: map[*byte]bool{}}
}

// check makes sure that the memory will stay, and learns its size.
func (f *sharedFile) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	f.size = uint64(st.Size)
	return shm.Check(f.fd, 0, f.size)
}

// mmap makes a part of it accessible, until unmap.
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

// window returns a window, which is mapped when it is first needed.
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

// unmap gives up what mmap has returned. It must not be touched any more: the daemon may place another ring there.
func (f *sharedFile) unmap(mem []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.own[&mem[0]] {
		delete(f.own, &mem[0])
		_ = shm.Unmap(mem) // cannot fail for a mapping that we made
	}
}

// close ends all windows.
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
