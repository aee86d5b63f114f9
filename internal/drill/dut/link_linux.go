package dut

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// link carries Ethernet frames between the tester and the device.
type link struct {
	fd   int
	to   unix.Sockaddr // of AF_UNIX: the device's socket
	path string        // of our socket, removed by close
}

// openSocket returns a link of AF_UNIX datagrams, as QEMU and the daemon's port "unix" have it.
func openSocket(local, remote string) (*link, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &link{fd: fd, to: &unix.SockaddrUnix{Name: remote}, path: local}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: local}); err != nil {
		return nil, errors.Join(fmt.Errorf("link %s: %w", local, err), l.close())
	}
	return l, l.prepare()
}

// prepare asks for the kernel's time of each received frame.
func (l *link) prepare() error {
	if err := unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return errors.Join(fmt.Errorf("time stamps: %w", err), l.close())
	}
	return nil
}

// send sends a frame.
func (l *link) send(frame []byte) error {
	return unix.Sendto(l.fd, frame, 0, l.to)
}

// recv reads a frame into b. at is the kernel's time of its arrival. own says that this side sent the frame.
func (l *link) recv(b []byte) (n int, at time.Time, own bool, err error) {
	control := make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	n, used, _, from, err := unix.Recvmsg(l.fd, b, control, 0)
	if err != nil {
		return 0, at, false, err
	}
	if a, ok := from.(*unix.SockaddrLinklayer); ok {
		own = a.Pkttype == unix.PACKET_OUTGOING
	}
	at = time.Now()
	messages, err := unix.ParseSocketControlMessage(control[:used])
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			t := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			at = time.Unix(t.Unix())
		}
	}
	return n, at, own, err
}

// wait blocks until a frame can be read, at most for d.
func (l *link) wait(d time.Duration) (bool, error) {
	p := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, int(d.Milliseconds()))
	if err == unix.EINTR {
		return false, nil
	}
	return n > 0, err
}

func (l *link) close() error {
	err := unix.Close(l.fd)
	if l.path != "" {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
