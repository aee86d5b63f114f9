package server

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// channelBuffer is the requested size of a channel's socket buffer: about forty events. Further unread events
	// wait in the channel, at little cost.
	channelBuffer = 16 << 10
	// maxWaiting limits the distinct events in the backlog of a client that does not read. Completion channels have
	// one per completion queue.
	maxWaiting = 8192
)

// channel carries events to a client: completion events or asynchronous events. The sender of an event, which may be
// the shard, writes it to the socket. When the socket is full, the channel counts the events of each kind. The
// server's flusher writes them when the client reads. A channel therefore needs neither a thread nor a goroutine,
// and the client's objects limit the backlog of a slow reader.
type channel struct {
	id      uint32
	fd      int // the daemon's end, non-blocking
	cqs     int // number of CQs that report here
	flusher *flusher

	mu      sync.Mutex
	watched bool // the flusher's epoll knows fd
	closed  bool
	order   []notice // backlog, next to write first
	waiting map[notice]uint32
}

// notice is one kind of event: the bytes to write and the counter of written events.
type notice struct {
	text  [16]byte
	size  uint8
	count *atomic.Uint32 // may be nil
}

// newNotice makes a notice from an event's bytes.
func newNotice(event []byte, count *atomic.Uint32) notice {
	n := notice{size: uint8(len(event)), count: count}
	copy(n.text[:], event)
	return n
}

// newChannel makes a channel and returns the client's end of its socket.
func newChannel(f *flusher) (ch *channel, clientFD int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, channelBuffer) // only saves memory, so an error does not matter
	return &channel{fd: fds[0], flusher: f}, fds[1], nil
}

// send writes an event now, or queues it until the client reads.
func (ch *channel) send(n notice) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.closed:
	case len(ch.order) > 0:
		ch.wait(n)
	default:
		switch ch.write(n) {
		case nil:
		case unix.EAGAIN:
			ch.wait(n)
			ch.flusher.watch(ch)
		default:
			// The client has closed its end.
		}
	}
}

// wait adds an event to the backlog.
func (ch *channel) wait(n notice) {
	if ch.waiting[n] == 0 {
		if len(ch.order) >= maxWaiting {
			return
		}
		if ch.waiting == nil {
			ch.waiting = map[notice]uint32{}
		}
		ch.order = append(ch.order, n)
	}
	ch.waiting[n]++
}

// write writes an event to the socket and counts it.
func (ch *channel) write(n notice) error {
	for {
		_, err := unix.SendmsgN(ch.fd, n.text[:n.size], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n.count != nil {
			n.count.Add(1)
		}
		return err
	}
}

// flush writes the backlog until the socket is full. The flusher calls it.
func (ch *channel) flush() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for len(ch.order) > 0 && !ch.closed {
		n := ch.order[0]
		switch ch.write(n) {
		case nil:
		case unix.EAGAIN:
			ch.flusher.watch(ch)
			return
		default:
			ch.forgetAll()
			return
		}
		ch.order = ch.order[1:]
		if ch.waiting[n]--; ch.waiting[n] > 0 {
			ch.order = append(ch.order, n)
		} else {
			delete(ch.waiting, n)
		}
	}
	ch.order, ch.waiting = nil, nil
}

// forgetAll drops the backlog.
func (ch *channel) forgetAll() { ch.order, ch.waiting = nil, nil }

// forget drops the queued events of an object that is being destroyed. It returns the number of events written for
// the object.
func (ch *channel) forget(count *atomic.Uint32) uint32 {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	kept := ch.order[:0]
	for _, n := range ch.order {
		if n.count == count {
			delete(ch.waiting, n)
		} else {
			kept = append(kept, n)
		}
	}
	ch.order = kept
	return count.Load()
}

// gone reports whether the client has closed its end.
func (ch *channel) gone() bool {
	fds := []unix.PollFd{{Fd: int32(ch.fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

func (ch *channel) close() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.closed = true
	ch.forgetAll()
	ch.flusher.forget(ch)
	unix.Close(ch.fd)
}
