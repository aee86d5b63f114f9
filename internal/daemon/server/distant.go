package server

import (
	"net"

	"golang.org/x/sys/unix"

	"roced/internal/daemon/pvm"
	"roced/qp"
	"roced/rocev2"
)

// peerPidfd returns a descriptor for the process that has connected. Linux before
// 6.5 can only be asked for the number's present owner.
func peerPidfd(conn *net.UnixConn, cred *unix.Ucred) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := raw.Control(func(s uintptr) {
		fd, err = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err == unix.ENOPROTOOPT {
			fd, err = unix.PidfdOpen(int(cred.Pid), 0)
		}
	})
	if cerr != nil {
		return -1, cerr
	}
	return fd, err
}

// distant returns memory of the client that is not shared with the daemon. It must
// be there, and writable if the region is.
func (c *client) distant(start, length uint64, access qp.Access) (rocev2.Memory, error) {
	if c.proc == nil {
		p, err := pvm.Open(int(c.cred.Pid), c.cred.Uid, c.pidfd)
		if err != nil {
			c.log.Info("memory of the client cannot be accessed", "err", err)
			return nil, unix.EFAULT
		}
		c.proc = p
	}
	if err := c.proc.Check(start, length, access&qp.AccessLocalWrite != 0); err != nil {
		return nil, err
	}
	return pvm.NewRegion(c.proc, start), nil
}

// closeProcess gives up the client's process. No region is left, and no command is
// running.
func (c *client) closeProcess() {
	if c.proc != nil {
		c.proc.Close()
	}
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
	}
}
