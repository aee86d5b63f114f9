// Package unix is a link between two AF_UNIX datagram sockets. It needs no privilege.
//
// No promise: this package may change between releases.
package unix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

const (
	// bufferSize is the size of both buffers of the socket. Without privilege the kernel grants up to
	// net.core.wmem_max. Frames in the buffer delay the frames of all other users: 8 MiB, full of one user's
	// super-frames, took 0.1 s on a machine with other work.
	bufferSize = 1 << 20
	// pollInterval is the interval at which a port checks for the remote socket and for its replacement.
	pollInterval = 200 * time.Millisecond
)

// Config describes an AF_UNIX datagram port.
type Config struct {
	// Local is the path of the local socket. Open replaces the socket of a dead process.
	Local string
	// Remote is the path of the remote socket, which may appear later, and again.
	Remote string
}

// Port is a port that sends every Ethernet frame as one datagram. QEMU does the same with
//
//	-netdev dgram,id=n,local.type=unix,local.path=REMOTE,remote.type=unix,remote.path=LOCAL
//
// The socket is connected to the remote socket. The kernel then refuses datagrams from other sockets, reports when
// there is room again, and does not apply net.unix.max_dgram_qlen between two ports that are connected to each other.
// The port is down until the remote socket exists.
type Port struct {
	port.Base
	cfg  Config
	sock int
	own  fileID // of the socket file at Local; Close removes only this one
	peer fileID // of the socket file that sock is connected to

	vector port.Vector
	msg    unix.Msghdr
}

// fileID identifies a file; the zero value identifies none. The change time distinguishes files that have the same
// inode number one after the other, as socket files do after a socket has been closed.
type fileID struct {
	dev, ino uint64
	changed  unix.Timespec
}

// same reports whether a and b are the same file, provided that some process has it open.
func (a fileID) same(b fileID) bool { return a.dev == b.dev && a.ino == b.ino }

// Open binds the local socket.
func Open(c Config) (*Port, error) {
	const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1
	for _, path := range []string{c.Local, c.Remote} {
		if path == "" || len(path) > maxPath || path[0] == '@' {
			return nil, fmt.Errorf("unix port: path %q: must be a file name of 1 to %d bytes", path, maxPath)
		}
	}
	if c.Local == c.Remote {
		return nil, fmt.Errorf("unix port: local and remote are both %s", c.Local)
	}
	p := &Port{cfg: c, sock: -1}
	if err := p.open(); err != nil {
		return nil, fmt.Errorf("unix port: %w", err)
	}
	p.connect(0)
	return p, nil
}

func (p *Port) open() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	port.SetBuffers(fd, bufferSize, bufferSize)
	if err := bind(fd, p.cfg.Local); err != nil {
		unix.Close(fd)
		return wrapPath("bind", p.cfg.Local, err)
	}
	p.sock = fd
	p.own, _ = statFile(p.cfg.Local)
	return nil
}

// bind binds fd to path. It replaces a socket that no process has open.
func bind(fd int, path string) error {
	addr := &unix.SockaddrUnix{Name: path}
	err := unix.Bind(fd, addr)
	if !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	if err := staleSocket(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return unix.Bind(fd, addr)
}

// staleSocket returns nil if path is a socket that no process has open.
func staleSocket(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errors.New("the file exists and is not a socket")
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

// connect connects to the socket that now exists at Remote.
func (p *Port) connect(now mono.Time) {
	p.Next = now.Add(pollInterval)
	id, err := statFile(p.cfg.Remote)
	if err == nil {
		err = unix.Connect(p.sock, &unix.SockaddrUnix{Name: p.cfg.Remote})
	}
	if err != nil {
		p.SetState(link.State{Err: wrapPath("connect", p.cfg.Remote, err)}, -1)
		return
	}
	p.peer = id
	p.SetState(link.State{Up: true}, p.sock) // a socket has no MTU
}

// disconnect disconnects from the remote socket. err is the reason.
func (p *Port) disconnect(now mono.Time, err error) {
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	unix.RawSyscall(unix.SYS_CONNECT, uintptr(p.sock), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	p.peer = fileID{}
	p.Lose(now, wrapPath("send", p.cfg.Remote, err))
	p.Next = now.Add(pollInterval)
}

// Poll implements port.Monitored.
func (p *Port) Poll(now mono.Time) {
	if p.sock < 0 {
		return
	}
	if p.State().Up {
		if id, err := statFile(p.cfg.Remote); err == nil && id == p.peer {
			p.Next = now.Add(pollInterval)
			return
		}
		p.disconnect(now, unix.ENOTCONN)
	}
	if p.connect(now); p.State().Up && p.Counters.Lost > p.Counters.Reopened {
		p.Counters.Reopened++
	}
}

// Send implements port.Port.
func (p *Port) Send(now mono.Time, f *link.Frame) error {
	if p.FD() < 0 {
		return port.ErrDown
	}
	_, e := p.message(unix.SYS_SENDMSG, p.vector.Gather(0, f), unix.MSG_NOSIGNAL)
	switch e {
	case 0:
		return nil
	case unix.ECONNREFUSED, unix.ENOTCONN, unix.EPIPE, unix.EPERM:
		p.disconnect(now, e)
		return port.ErrDown
	}
	return p.SendFailed("unix port", e, func() { p.Poll(now) })
}

// Recv implements port.Port.
func (p *Port) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if now >= p.Next {
		p.Poll(now)
	}
	if p.FD() < 0 {
		return nil, 0, port.ErrDown
	}
	if len(buf) == 0 {
		return nil, 0, errors.New("unix port: empty buffer")
	}
	p.vector.Set(0, buf)
	for {
		n, e := p.message(unix.SYS_RECVMSG, p.vector.Entries(1), unix.MSG_TRUNC)
		switch {
		case e == unix.ECONNRESET: // the remote socket has been connected elsewhere; the kernel reports it once
			continue
		case e != 0:
			return nil, 0, p.RecvFailed("unix port", e, func() { p.Poll(now) })
		case n < port.EthLen || n > len(buf):
			p.Counters.RecvDropped++
			continue
		}
		return buf[:n], 0, nil
	}
}

func (p *Port) message(trap uintptr, v []unix.Iovec, flags int) (int, unix.Errno) {
	p.msg = unix.Msghdr{Iov: &v[0]}
	p.msg.SetIovlen(len(v))
	return port.RawMessage(trap, p.sock, &p.msg, flags)
}

// Offload implements port.Port. A datagram holds one frame.
func (p *Port) Offload() link.Offload { return link.Offload{} }

// Close implements port.Port. It removes the socket file unless another port has replaced it.
func (p *Port) Close() error {
	if p.sock < 0 {
		return nil
	}
	var err error
	if id, statErr := statFile(p.cfg.Local); statErr == nil && id.same(p.own) {
		err = os.Remove(p.cfg.Local)
	}
	port.CloseSocket(&p.sock)
	p.SetClosed()
	return err
}

var _ port.Monitored = (*Port)(nil)
