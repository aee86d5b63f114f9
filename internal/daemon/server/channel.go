package server

import (
	"sync"

	"golang.org/x/sys/unix"
)

// maxQueued bounds the events that wait for a client which does not read.
const maxQueued = 1024

// channel carries events to a client: completions of CQs, or asynchronous ones.
// Events are written at once, by the shard; when the socket is full they wait,
// and a goroutine that lives only then writes them.
type channel struct {
	id  uint32
	fd  int // the daemon's end, non-blocking
	cqs int // that report here

	mu      sync.Mutex
	queue   [][]byte
	closed  bool
	writing bool // the goroutine lives
	done    sync.WaitGroup
	dropped uint64
}

// newChannel makes a channel and the client's end of it.
func newChannel() (ch *channel, clientFD int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	return &channel{fd: fds[0]}, fds[1], nil
}

// send passes an event on and reports whether it did; false means that the client
// has left too many unread, or has gone.
func (ch *channel) send(event []byte) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return false
	}
	if len(ch.queue) == 0 {
		err := ch.write(event)
		if err == nil {
			return true
		}
		if err != unix.EAGAIN {
			ch.dropped++
			return false
		}
	}
	if len(ch.queue) >= maxQueued {
		ch.dropped++
		return false
	}
	ch.queue = append(ch.queue, append([]byte(nil), event...))
	if !ch.writing {
		ch.writing = true
		ch.done.Go(ch.drain)
	}
	return true
}

func (ch *channel) write(event []byte) error {
	for {
		_, err := unix.SendmsgN(ch.fd, event, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// drain writes what waits as the client reads.
func (ch *channel) drain() {
	for {
		ch.mu.Lock()
		for len(ch.queue) > 0 && !ch.closed {
			if ch.write(ch.queue[0]) == unix.EAGAIN {
				break
			}
			ch.queue = ch.queue[1:]
		}
		if len(ch.queue) == 0 || ch.closed {
			ch.queue, ch.writing = nil, false
			ch.mu.Unlock()
			return
		}
		ch.mu.Unlock()
		fds := []unix.PollFd{{Fd: int32(ch.fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds, drainLook)
	}
}

// drainLook is how often, in milliseconds, a full channel is looked at at least;
// it bounds how long closing one takes.
const drainLook = 50

// gone reports whether the client has closed its end.
func (ch *channel) gone() bool {
	fds := []unix.PollFd{{Fd: int32(ch.fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// close ends the channel. Nobody sends to it any more.
func (ch *channel) close() {
	ch.mu.Lock()
	ch.closed = true
	ch.mu.Unlock()
	ch.done.Wait()
	unix.Close(ch.fd)
}
