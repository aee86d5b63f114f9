package server

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// channelBuffer is what is asked for as buffer of a channel's socket: some forty events.
	// What a client leaves unread beyond that waits here, where it costs little.
	channelBuffer = 16 << 10
	// maxWaiting bounds the different events that wait for a client which does not read.
	// Completion channels have one a completion queue.
	maxWaiting = 8192
)

// channel carries events to a client: completions of CQs, or asynchronous ones. Whoever has
// one writes it, the shard too; when the socket is full events are counted, each kind once,
// and the flusher of the server writes them as the client reads. So a channel has neither a
// thread nor a goroutine, and what a slow reader leaves is bounded by what it has.
type channel struct {
	id      uint32
	fd      int // the daemon's end, non-blocking
	cqs     int // that report here
	flusher *flusher

	mu      sync.Mutex
	watched bool // the flusher's epoll knows fd
	closed  bool
	order   []notice // that wait, the one whose turn it is first
	waiting map[notice]uint32
	dropped uint64
}

// notice is one kind of event: what is written, and who counts that it has been.
type notice struct {
	text  [16]byte
	size  uint8
	count *atomic.Uint32 // nil: nobody
}

// newNotice makes the notice of an event.
func newNotice(event []byte, count *atomic.Uint32) notice {
	n := notice{size: uint8(len(event)), count: count}
	copy(n.text[:], event)
	return n
}

// newChannel makes a channel and the client's end of it.
func newChannel(f *flusher) (ch *channel, clientFD int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, channelBuffer) // saves memory, no more
	return &channel{fd: fds[0], flusher: f}, fds[1], nil
}

// send passes an event on, at once or as soon as the client reads.
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
			ch.dropped++ // the client has gone
		}
	}
}

// wait makes an event wait for its turn.
func (ch *channel) wait(n notice) {
	if ch.waiting[n] == 0 {
		if len(ch.order) >= maxWaiting {
			ch.dropped++
			return
		}
		if ch.waiting == nil {
			ch.waiting = map[notice]uint32{}
		}
		ch.order = append(ch.order, n)
	}
	ch.waiting[n]++
}

// write writes an event and counts it.
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

// flush writes what waits as far as there is room. The flusher calls it.
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

// forgetAll ends the waiting of all events.
func (ch *channel) forgetAll() { ch.order, ch.waiting = nil, nil }

// forget ends the waiting of the events that count counts, whose object is going, and
// returns how many have been written.
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

// close ends the channel.
func (ch *channel) close() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.closed = true
	ch.forgetAll()
	ch.flusher.forget(ch)
	unix.Close(ch.fd)
}
