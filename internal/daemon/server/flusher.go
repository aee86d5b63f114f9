package server

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// flusher writes the backlog of full channels. One goroutine serves all clients of a server and waits in the
// runtime's poller, like the goroutines of connections.
type flusher struct {
	epoll *os.File
	fd    int // of epoll

	mu       sync.Mutex
	channels map[int32]*channel // channels watched so far, by descriptor
	done     chan struct{}
}

func newFlusher() (*flusher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // the runtime polls it
		unix.Close(fd)
		return nil, err
	}
	f := &flusher{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, channels: map[int32]*channel{}, done: make(chan struct{})}
	raw, err := f.epoll.SyscallConn()
	if err != nil {
		f.epoll.Close()
		return nil, err
	}
	go f.run(raw.Read)
	return f, nil
}

// run flushes the channels that have room again, until the flusher is closed.
func (f *flusher) run(wait func(func(uintptr) bool) error) {
	defer close(f.done)
	var ready [64]unix.EpollEvent
	for {
		n := 0
		err := wait(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), ready[:], 0) // on error, n is negative: wait again
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range ready[:n] {
			f.mu.Lock()
			ch := f.channels[e.Fd]
			f.mu.Unlock()
			if ch != nil { // a new channel may have the same number; a flush is harmless
				ch.flush()
			}
		}
	}
}

// watch makes the flusher flush ch once its socket has room. The caller holds ch's lock.
func (f *flusher) watch(ch *channel) {
	op := unix.EPOLL_CTL_MOD
	if !ch.watched {
		op = unix.EPOLL_CTL_ADD
		ch.watched = true
		f.mu.Lock()
		f.channels[int32(ch.fd)] = ch
		f.mu.Unlock()
	}
	e := unix.EpollEvent{Events: unix.EPOLLOUT | unix.EPOLLONESHOT, Fd: int32(ch.fd)}
	if unix.EpollCtl(f.fd, op, ch.fd, &e) != nil { // out of memory: the backlog is lost
		ch.forgetAll()
	}
}

// forget reverses watch. The caller holds ch's lock.
func (f *flusher) forget(ch *channel) {
	if !ch.watched {
		return
	}
	f.mu.Lock()
	delete(f.channels, int32(ch.fd))
	f.mu.Unlock()
	_ = unix.EpollCtl(f.fd, unix.EPOLL_CTL_DEL, ch.fd, nil)
}

// close stops the flusher. Call it after all channels are closed.
func (f *flusher) close() {
	f.epoll.Close()
	<-f.done
}
