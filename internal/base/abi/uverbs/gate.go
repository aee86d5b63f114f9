package uverbs

import (
	"net"

	"golang.org/x/sys/unix"
)

// Gate limits the descriptors of an untrusted peer. Such a peer can make a close block for any time: with a file of
// its own file system in user space, which answers no FLUSH, or with a socket that lingers (SO_LINGER). Each blocked
// close holds a thread of this process.
type Gate struct {
	// Slots limits the blocked threads.
	Slots interface {
		Enter(done <-chan struct{}) bool
		Leave()
	}
	// Charge adds n, which may be negative, to the peer's descriptors in flight. It reports whether they stay within
	// the peer's quota.
	Charge func(n int) bool
	// Done is closed when the process must not wait any more.
	Done <-chan struct{}
}

// Limit makes the connection distrust its peer. Call it before any other method.
func (c *Conn) Limit(g *Gate) { c.gate = g }

// read receives one datagram. If the control buffer is too short, the kernel closes the remaining descriptors here.
func (c *Conn) read() (n, oobn, flags int, err error) {
	if c.gate == nil {
		n, oobn, flags, _, err = c.uc.ReadMsgUnix(c.buf, c.oob)
		return n, oobn, flags, err
	}
	raw, err := c.uc.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	rerr := raw.Read(func(fd uintptr) bool {
		if !c.gate.Slots.Enter(c.gate.Done) {
			err = net.ErrClosed
			return true
		}
		defer c.gate.Slots.Leave()
		n, oobn, flags, _, err = unix.Recvmsg(int(fd), c.buf, c.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		return err != unix.EAGAIN && err != unix.EINTR
	})
	if rerr != nil {
		err = rerr
	}
	return max(n, 0), oobn, flags, err
}

// charge reports whether the peer may have these descriptors in flight.
func (c *Conn) charge(fds []int) bool {
	return c.gate == nil || len(fds) == 0 || c.gate.Charge(len(fds))
}

// Drop closes descriptors that the peer has sent. It blocks while the user of the peer has too many blocked closes.
func (c *Conn) Drop(fds []int) {
	if c.gate == nil || len(fds) == 0 {
		CloseFDs(fds)
		return
	}
	defer c.gate.Charge(-len(fds))
	var rest []int
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil { // closing a memfd does not block
			_ = unix.Close(fd)
		} else {
			rest = append(rest, fd)
		}
	}
	if len(rest) == 0 {
		return
	}
	closed := make(chan struct{})
	if !c.gate.Slots.Enter(c.gate.Done) {
		go CloseFDs(rest)
		return
	}
	go func() {
		defer close(closed)
		defer c.gate.Slots.Leave()
		CloseFDs(rest)
	}()
	select {
	case <-closed:
	case <-c.gate.Done:
	}
}
