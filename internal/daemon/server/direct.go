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

// here is the shard that runs a client's command.
type here struct {
	now mono.Time
	nic *rocev2.NIC
}

// Command runs the command in the client's doorbell memory, on the shard. A command through the socket wakes two
// threads in the daemon; this path wakes at most one.
//
// Command accepts only commands that never block. It refuses others with EAGAIN, and also a command while another
// one runs; the client then uses the socket. After any error the client may retry through the socket to obtain the
// error text.
func (c *client) Command(now mono.Time, n *rocev2.NIC) {
	mem := c.bellMem.data
	ret := unix.EAGAIN
	defer func() { answerDirect(mem, ret) }() // in every case: the client waits
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	c.here = &here{now, n}
	defer func() { c.here = nil }()
	ret = c.directly(mem)
}

// directly runs the command in mem and writes the response there.
func (c *client) directly(mem []byte) unix.Errno {
	size := atomic.LoadUint32(wordAt(mem, uverbs.DirectLen))
	if size > uverbs.DirectRoom {
		return unix.EINVAL
	}
	// The client may modify the memory meanwhile, so validate a copy.
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

// directUnmap is the largest mapping to unmap on the shard: 256 pages take about 20 us.
const directUnmap = 1 << 20

// takesLong returns EAGAIN on the shard if releasing m would unmap a large mapping, or could free a file.
func (c *client) takesLong(m *mapping) error {
	if c.here != nil && m != nil && (m.size > directUnmap || m.file != nil) && m.refs.Load() == 1 {
		return unix.EAGAIN
	}
	return nil
}

// answerDirect publishes the result, and wakes the client if it sleeps.
func answerDirect(mem []byte, ret unix.Errno) {
	atomic.StoreUint32(wordAt(mem, uverbs.DirectRet), uint32(-int32(ret)))
	state := wordAt(mem, uverbs.DirectState)
	if atomic.SwapUint32(state, uverbs.DirectAnswered) == uverbs.DirectAwaited {
		const wake = 1 // FUTEX_WAKE without FUTEX_PRIVATE: processes share the memory
		_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(state)), wake, math.MaxInt32)
	}
}

func wordAt(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
