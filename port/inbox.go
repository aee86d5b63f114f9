package port

import (
	"sync"
	"sync/atomic"

	"roced.io/roced/internal/base/ring"
)

const (
	// maxInbox bounds the bytes in an inbox: two senders that fill their windows (link.RemoteWindow).
	maxInbox = 32 << 20
	// letterCost is added to the bytes of each frame.
	letterCost = 1 << 10
	// maxFree bounds the bytes of free buffers: as many as frames. A sender that fills its window must find its buffers again.
	maxFree = maxInbox
)

// inbox is a queue of copies of frames for a port: those of its NIC to itself, and of other NICs of the switch. Any
// thread may add frames; the owner of the port takes them. A sender copies a frame into a buffer of its own, and exchanges
// that for a free one. So the lock covers no copy, and no access to the memory of a program.
type inbox struct {
	mu     sync.Mutex
	frames ring.Ring[letter]
	bytes  int
	n      atomic.Int32  // of frames
	free   [][]byte      // buffers; the one used last comes first
	spare  int           // bytes of the free buffers
	lost   atomic.Uint64 // frames without room
}

// letter is a frame in an inbox, or a super-frame.
type letter struct {
	frame    []byte
	segSize  int
	unsealed bool // without ICRCs
}

func (l *letter) cost() int { return len(l.frame) + letterCost }

// put adds l, and returns a buffer in its place. ok is false if there is no room.
func (b *inbox) put(l letter) (spare []byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+l.cost() > maxInbox {
		return l.frame, false
	}
	*b.frames.Push() = l
	b.bytes += l.cost()
	b.n.Add(1)
	if last := len(b.free) - 1; last >= 0 {
		spare, b.free = b.free[last], b.free[:last]
		b.spare -= cap(spare)
	}
	return spare, true
}

// take frees the buffer used, and returns the oldest frame of an inbox that is not empty.
func (b *inbox) take(used []byte) (l letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if used != nil && b.spare+cap(used) <= maxFree {
		b.free = append(b.free, used)
		b.spare += cap(used)
	}
	oldest := b.frames.Oldest()
	l, *oldest = *oldest, letter{}
	b.frames.Head++
	b.bytes -= l.cost()
	b.n.Add(-1)
	return l
}

// empty reports whether there is no frame.
func (b *inbox) empty() bool { return b.n.Load() == 0 }
