package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

const (
	// unixBuffer is asked for in both directions; without privilege the kernel
	// grants up to net.core.wmem_max. What waits here is ahead of everybody else's frames: 8 MiB, full of
	// one user's super-frames, took 0.1 s on a machine with other work.
	unixBuffer = 1 << 20
	// unixPoll is how often a port looks whether the other end is there, and is
	// still the socket that it is connected to.
	unixPoll = 200 * time.Millisecond
)

// UnixConfig describes an AF_UNIX datagram port.
type UnixConfig struct {
	// Local is the path of this end. A socket that a dead process has left there
	// is replaced.
	Local string
	// Remote is the path of the other end, which may appear later and more than
	// once.
	Remote string
}

// Unix is a port that sends every Ethernet frame as one datagram, as QEMU's
//
//	-netdev dgram,id=n,local.type=unix,local.path=REMOTE,remote.type=unix,remote.path=LOCAL
//
// does. It needs no privilege. The socket is connected to the other end: the
// kernel then lets nobody else send to it, tells when there is room again, and
// lifts the limit of net.unix.max_dgram_qlen datagrams between two ports that
// are connected to each other. The port is down until the other end is there.
type Unix struct {
	cfg   UnixConfig
	fd    int
	own   fileID // of the socket file at Local, to remove nobody else's
	peer  fileID // of the socket file that fd is connected to
	state LinkState
	stats Stats
	next  mono.Time

	iov  [maxIov]unix.Iovec
	msg  unix.Msghdr
	flat []byte
}

// fileID identifies a file; the zero value none. changed tells files apart that
// have followed each other under one inode number, which is what happens to a
// socket file once its socket has been closed.
type fileID struct {
	dev, ino uint64
	changed  unix.Timespec
}

// same reports whether a and b are the same file while somebody holds it open.
func (a fileID) same(b fileID) bool { return a.dev == b.dev && a.ino == b.ino }

// OpenUnix binds the local end.
func OpenUnix(c UnixConfig) (*Unix, error) {
	u := &Unix{cfg: c, fd: -1}
	const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1
	for _, path := range []string{c.Local, c.Remote} {
		if path == "" || len(path) > maxPath || path[0] == '@' {
			return nil, fmt.Errorf("unix port: path %q: want a file name of 1 to %d bytes", path, maxPath)
		}
	}
	if c.Local == c.Remote {
		return nil, fmt.Errorf("unix port: local and remote are both %s", c.Local)
	}
	if err := u.open(); err != nil {
		return nil, fmt.Errorf("unix port: %w", err)
	}
	u.connect(0)
	return u, nil
}

func (u *Unix) open() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, opt := range [][2]int{{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], unixBuffer) == nil {
			continue
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], unixBuffer); err != nil {
			unix.Close(fd)
			return fmt.Errorf("buffer size: %w", err)
		}
	}
	if err := bindUnix(fd, u.cfg.Local); err != nil {
		unix.Close(fd)
		return err
	}
	u.fd = fd
	u.own, _ = statFile(u.cfg.Local)
	return nil
}

// bindUnix binds fd to path, and replaces a socket that nobody has open.
func bindUnix(fd int, path string) error {
	addr := &unix.SockaddrUnix{Name: path}
	err := unix.Bind(fd, addr)
	if !errors.Is(err, unix.EADDRINUSE) {
		return wrapPath("bind", path, err)
	}
	if err := staleSocket(path); err != nil {
		return wrapPath("bind", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return wrapPath("bind", path, unix.Bind(fd, addr))
}

// staleSocket returns nil when path is a socket that nobody has open.
func staleSocket(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errors.New("the file is there and is not a socket")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.ECONNREFUSED) {
		return errors.New("another process uses the socket")
	}
	return nil
}

func wrapPath(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// statFile identifies the file at path.
func statFile(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(st.Dev), st.Ino, st.Ctim}, nil
}

// connect connects the socket to whatever is at Remote.
func (u *Unix) connect(now mono.Time) {
	u.next = now.Add(unixPoll)
	id, err := statFile(u.cfg.Remote)
	if err == nil {
		err = unix.Connect(u.fd, &unix.SockaddrUnix{Name: u.cfg.Remote})
	}
	if err != nil {
		u.state = LinkState{Err: wrapPath("connect", u.cfg.Remote, err)}
		return
	}
	u.peer, u.state = id, LinkState{Up: true}
}

// disconnect gives the other end up, for the reason err.
func (u *Unix) disconnect(now mono.Time, err error) {
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	unix.RawSyscall(unix.SYS_CONNECT, uintptr(u.fd), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	u.peer, u.state = fileID{}, LinkState{Err: wrapPath("send", u.cfg.Remote, err)}
	u.stats.Lost++
	u.next = now.Add(unixPoll)
}

// Poll implements Monitored.
func (u *Unix) Poll(now mono.Time) {
	if u.fd < 0 {
		return
	}
	if u.state.Up {
		if id, err := statFile(u.cfg.Remote); err == nil && id == u.peer {
			u.next = now.Add(unixPoll)
			return
		}
		u.disconnect(now, unix.ENOTCONN)
	}
	if u.connect(now); u.state.Up && u.stats.Lost > u.stats.Reopened {
		u.stats.Reopened++
	}
}

// Send implements Port.
func (u *Unix) Send(now mono.Time, f *rocev2.Frame) error {
	if !u.state.Up {
		return ErrDown
	}
	bufs := f.Bufs
	if len(bufs) > maxIov {
		u.flat = f.AppendTo(u.flat[:0])
		bufs = [][]byte{u.flat}
	}
	n := 0
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		u.iov[n].Base = &b[0]
		u.iov[n].SetLen(len(b))
		n++
	}
	if _, e := u.message(unix.SYS_SENDMSG, n, unix.MSG_NOSIGNAL); e != 0 {
		return u.sendFailed(now, e)
	}
	return nil
}

func (u *Unix) sendFailed(now mono.Time, e unix.Errno) error {
	switch e {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		u.stats.Again++
		return ErrAgain
	case unix.ECONNREFUSED, unix.ENOTCONN, unix.EPIPE, unix.EPERM:
		u.disconnect(now, e)
		return ErrDown
	}
	u.stats.SendDropped++
	return fmt.Errorf("unix port: send: %w", e)
}

// Recv implements Port.
func (u *Unix) Recv(now mono.Time, buf []byte) (n, segSize int, err error) {
	if now >= u.next {
		u.Poll(now)
	}
	if !u.state.Up {
		return 0, 0, ErrDown
	}
	if len(buf) == 0 {
		return 0, 0, errors.New("unix port: empty buffer")
	}
	u.iov[0].Base = &buf[0]
	u.iov[0].SetLen(len(buf))
	for {
		n, e := u.message(unix.SYS_RECVMSG, 1, unix.MSG_TRUNC)
		switch {
		case e == unix.EAGAIN:
			return 0, 0, ErrAgain
		case e == unix.ECONNRESET: // the other end has been connected elsewhere; said once
			continue
		case e != 0:
			return 0, 0, fmt.Errorf("unix port: receive: %w", e)
		case n < ethLen || n > len(buf):
			u.stats.RecvDropped++
			continue
		}
		return n, 0, nil
	}
}

// message is sendmsg or recvmsg with the first n pieces of iov. Like rawRW it
// does not tell the scheduler.
func (u *Unix) message(trap uintptr, n int, flags uintptr) (int, unix.Errno) {
	u.msg = unix.Msghdr{Iov: &u.iov[0]}
	u.msg.SetIovlen(n)
	for {
		r, _, e := unix.RawSyscall(trap, uintptr(u.fd), uintptr(unsafe.Pointer(&u.msg)), flags)
		if e != unix.EINTR {
			return int(r), e
		}
	}
}

// NextTimeout implements Port.
func (u *Unix) NextTimeout() mono.Time { return u.next }

// FD implements Port.
func (u *Unix) FD() int {
	if !u.state.Up {
		return -1
	}
	return u.fd
}

// Offload implements Port: datagrams hold one frame each.
func (u *Unix) Offload() rocev2.Offload { return rocev2.Offload{} }

// State implements Monitored. A socket has no MTU.
func (u *Unix) State() LinkState { return u.state }

// Stats implements Monitored.
func (u *Unix) Stats() Stats { return u.stats }

// Close implements Port. It removes the socket file if it is still its own.
func (u *Unix) Close() error {
	if u.fd < 0 {
		return nil
	}
	var err error
	if id, statErr := statFile(u.cfg.Local); statErr == nil && id.same(u.own) {
		err = os.Remove(u.cfg.Local)
	}
	unix.Close(u.fd)
	u.fd, u.next, u.state = -1, mono.Never, LinkState{Err: errClosed}
	return err
}

var _ Monitored = (*Unix)(nil)
