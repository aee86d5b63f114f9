package server

import (
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// here is the shard that a client's command is carried out on.
type here struct {
	now mono.Time
	nic *rocev2.NIC
}

// Command carries out the command that the client has left in its doorbells' memory, on the
// shard: what comes by the socket wakes two threads here, and this one or none. It is for
// commands that never wait. Any other is refused with EAGAIN, and so is one that comes while
// another is under way: the socket is for those. A client may ask again by the socket after
// any error, for the words that go with it.
func (c *client) Command(now mono.Time, n *rocev2.NIC) {
	mem := c.bellMem.data
	ret := unix.EAGAIN
	defer func() { answerDirect(mem, ret) }() // whatever happens: the client waits
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	c.here = &here{now, n}
	defer func() { c.here = nil }()
	ret = c.directly(mem)
}

// directly carries out the command in mem and leaves the response there.
func (c *client) directly(mem []byte) unix.Errno {
	size := atomic.LoadUint32(wordAt(mem, uverbs.DirectLen))
	if size > uverbs.DirectRoom {
		return unix.EINVAL
	}
	// The client may change it meanwhile, so only a copy can be trusted to stay as it is.
	var msg [uverbs.DirectRoom]byte
	copy(msg[:], mem[uverbs.DirectCommand:][:size])
	r, err := uverbs.ParseRequest(msg[:size])
	if err != nil {
		return unix.EINVAL
	}
	if r.Extended || !direct[r.Command] {
		return unix.EAGAIN
	}
	q := &request{Request: r}
	q.finish(c.execute(q))
	c.srv.commands.Add(1)
	body := q.answer.Body
	if q.answer.Err != nil || len(body) > uverbs.DirectRoom {
		return uverbs.Errno(q.answer.Err)
	}
	copy(mem[uverbs.DirectBody:], body)
	atomic.StoreUint32(wordAt(mem, uverbs.DirectAnswer), uint32(len(body)))
	return 0
}

// directUnmap is the largest mapping that ends on the shard: 256 pages take some 20 us.
const directUnmap = 1 << 20

// takesLong refuses, on the shard, to give up the last reference to a large mapping.
func (c *client) takesLong(m *mapping) error {
	if c.here != nil && m != nil && m.size > directUnmap && m.refs.Load() == 1 {
		return unix.EAGAIN
	}
	return nil
}

// answerDirect gives the turn to the client, and wakes it if it sleeps.
func answerDirect(mem []byte, ret unix.Errno) {
	atomic.StoreUint32(wordAt(mem, uverbs.DirectRet), uint32(-int32(ret)))
	state := wordAt(mem, uverbs.DirectState)
	if atomic.SwapUint32(state, uverbs.DirectAnswered) == uverbs.DirectAwaited {
		const wake = 1 // FUTEX_WAKE, of whoever shares the memory
		_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(state)), wake, math.MaxInt32)
	}
}

func wordAt(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
