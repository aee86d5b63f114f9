package server

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// flusher writes the events that wait in full channels: one goroutine for all clients of a
// server, which waits, as those of connections do, in the runtime's poller.
type flusher struct {
	epoll *os.File
	fd    int // of epoll

	mu       sync.Mutex
	channels map[int32]*channel // by descriptor: those that have been watched
	done     chan struct{}
}

func newFlusher() (*flusher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the runtime, which polls it
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
			n, _ = unix.EpollWait(int(fd), ready[:], 0) // an error is an early look
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range ready[:n] {
			f.mu.Lock()
			ch := f.channels[e.Fd]
			f.mu.Unlock()
			if ch != nil { // or its successor of the same number, which does not mind
				ch.flush()
			}
		}
	}
}

// watch makes ch be flushed once it has room. Its lock is held.
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
	if unix.EpollCtl(f.fd, op, ch.fd, &e) != nil { // no memory: events that wait are lost
		ch.dropped += uint64(len(ch.order))
		ch.forgetAll()
	}
}

// forget ends what watch has begun. The lock of ch is held.
func (f *flusher) forget(ch *channel) {
	if !ch.watched {
		return
	}
	f.mu.Lock()
	delete(f.channels, int32(ch.fd))
	f.mu.Unlock()
	_ = unix.EpollCtl(f.fd, unix.EPOLL_CTL_DEL, ch.fd, nil)
}

// close ends the flusher, which has no channels any more.
func (f *flusher) close() {
	f.epoll.Close()
	<-f.done
}
