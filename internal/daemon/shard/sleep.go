package shard

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epoll waits for descriptors. Eventfds are edge-triggered and need no read.
type epoll struct {
	fd      int
	control int  // eventfd of Do
	coarse  bool // the kernel has no epoll_pwait2
	events  [8]unix.EpollEvent

	mu     sync.Mutex // guards control: wake must not write after close
	closed bool
}

func (e *epoll) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return err
	}
	e.fd, e.control = fd, ev
	if err := e.addEvent(ev); err != nil {
		e.close()
		return err
	}
	return nil
}

func (e *epoll) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	unix.Close(e.fd)
	unix.Close(e.control)
}

func (e *epoll) addEvent(fd int) error {
	return unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)})
}

func (e *epoll) remove(fd int) error { return unix.EpollCtl(e.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// watch is a descriptor of a port in the wait set.
type watch struct {
	fd   int // -1 if none
	mask uint32
}

// watch adds the port's descriptor, if it has one, to the wait set in place of w.
func (e *epoll) watch(w *watch, fd int, writable bool) {
	mask := uint32(unix.EPOLLIN)
	if writable {
		mask |= unix.EPOLLOUT
	}
	if fd == w.fd && (fd < 0 || mask == w.mask) {
		return
	}
	ev := unix.EpollEvent{Events: mask, Fd: int32(fd)}
	if fd != w.fd && w.fd >= 0 {
		// The kernel removes a closed descriptor by itself.
		_ = unix.EpollCtl(e.fd, unix.EPOLL_CTL_DEL, w.fd, nil)
	}
	op := unix.EPOLL_CTL_ADD
	if fd == w.fd {
		op = unix.EPOLL_CTL_MOD
	}
	if fd >= 0 {
		if err := unix.EpollCtl(e.fd, op, fd, &ev); err != nil {
			fd = -1 // retried before the next wait
		}
	}
	w.fd, w.mask = fd, mask
}

// wake ends a wait. It is safe to call from other goroutines.
func (e *epoll) wake() {
	e.mu.Lock() // keeps close out
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	one := [8]byte{1}
	// Only a full counter makes the write fail, and a full counter wakes the loop as well.
	_, _ = unix.Write(e.control, one[:])
}

// wait returns when a descriptor is ready or d has passed. It does not report the descriptor, since the loop polls
// all sources anyway.
func (e *epoll) wait(d time.Duration) {
	if !e.coarse {
		ts := unix.NsecToTimespec(int64(d))
		_, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.fd), uintptr(unsafe.Pointer(&e.events[0])),
			uintptr(len(e.events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if errno != unix.ENOSYS {
			return
		}
		e.coarse = true
	}
	// Round down: an early wakeup costs one turn, a late one delays a deadline.
	_, _ = unix.EpollWait(e.fd, e.events[:], int(d/time.Millisecond))
}
