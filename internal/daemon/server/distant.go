package server

import (
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/pvm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// peerPidfd returns a pidfd of the connected process. Before Linux 6.5 it opens the PID, which may have a new owner.
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

// process is a process whose memory contains regions. The client and each region hold a reference.
type process struct {
	*pvm.Process
	c    *client
	refs atomic.Int32
}

func (c *client) newProcess(p *pvm.Process) *process {
	r := &process{Process: p, c: c}
	r.refs.Store(1)
	p.Lost = c.lost
	return r
}

// processFiles is the number of descriptors per process: its memory and its map.
const processFiles = 2

// lost logs the reason of the failure of a request. It runs on the shard or on the worker's goroutine.
func (c *client) lost(addr uint64, n int) {
	_ = c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x of a region are not there any more: the program has unmapped them, "+
		"has ended, or executes another program", n, addr)) // the completion reports the error to the program
}

// release drops a reference. The last one closes the descriptors.
func (p *process) release() {
	if p.refs.Add(-1) == 0 {
		p.Close()
		p.c.account.Add(quota.Descriptors, -processFiles)
	}
}

// passMemory selects the process whose memory new regions use: the client, or a child that uses its parent's
// context.
func (c *client) passMemory(q *request) error {
	var in uverbs.PassMemory
	if err := q.decode(&in); err != nil {
		return err
	}
	if len(q.FDs) == 0 {
		p, err := c.procs.get(in.Handle)
		if err != nil {
			return err
		}
		c.proc = p
	} else if err := c.adopt(q.FDs, &in.Handle); err != nil {
		return err
	}
	q.core = uverbs.PassMemoryResp{Handle: in.Handle}
	return nil
}

// adopt adds the process that the descriptors belong to.
func (c *client) adopt(fds []int, handle *uint32) error {
	if len(fds) != 2 {
		return unix.EINVAL
	}
	if c.procs.full() {
		c.forgetProcesses()
	}
	if c.procs.full() {
		return unix.ENOMEM
	}
	if !c.account.Take(quota.Descriptors, processFiles) {
		return unix.EMFILE
	}
	p, err := pvm.Adopt(fds[0], fds[1])
	if err != nil {
		c.account.Add(quota.Descriptors, -processFiles)
		return err
	}
	c.proc = c.newProcess(p)
	*handle = c.procs.add(c.proc)
	return nil
}

// forgetProcesses frees slots of processes without regions, whose clients pass their memory again when needed.
func (c *client) forgetProcesses() {
	for i, p := range c.procs.all {
		if p != c.proc && p.refs.Load() == 1 {
			c.procs.remove(i)
			p.release()
		}
	}
}

// distant returns unshared memory of the client and a reference to it. The memory must exist, and must be writable
// if the region is.
func (c *client) distant(start, length uint64, access qp.Access) (rocev2.Memory, keep, error) {
	if c.proc == nil {
		if err := c.open(); err != nil {
			return nil, keep{}, err
		}
	}
	if err := c.check(c.proc, start, length, access); err != nil {
		return nil, keep{}, err
	}
	c.proc.refs.Add(1)
	mem, r := c.deferred(c.proc, pvm.NewRegion(c.proc.Process, start))
	return mem, keep{proc: c.proc, remote: r}, nil
}

// open opens the memory of a client that has passed none. The daemon needs the rights of a debugger for it.
func (c *client) open() error {
	if !c.account.Take(quota.Descriptors, processFiles) {
		return unix.EMFILE
	}
	p, err := pvm.Open(int(c.cred.Pid), c.cred.Uid, c.pidfd)
	if err != nil {
		c.account.Add(quota.Descriptors, -processFiles)
		why := fmt.Sprintf("cannot open /proc/%d/mem (%v)", c.cred.Pid, err)
		if c.cred.Pid == 0 {
			why = "does not see the program's PID namespace"
		}
		return c.advise(unix.EFAULT, "the program's memory cannot be reached: it has passed no descriptor of its /proc/self/mem "+
			"(is /proc mounted where it runs, and its libroced.so as new as the daemon?), and the daemon "+why+
			", which would take CAP_SYS_PTRACE and a PID namespace above the program's")
	}
	if c.procs.full() {
		c.forgetProcesses()
	}
	if c.procs.full() {
		p.Close()
		c.account.Add(quota.Descriptors, -processFiles)
		return unix.ENOMEM
	}
	c.proc = c.newProcess(p)
	c.procs.add(c.proc)
	return nil
}

// check returns an error if the process's memory does not permit the region.
func (c *client) check(p *process, start, length uint64, access qp.Access) error {
	err := c.look(p, start, length, access&qp.AccessLocalWrite != 0)
	if err != nil {
		return c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x cannot be registered: %v", length, start, err))
	}
	return nil
}

// closeProcesses drops the client's references to its processes. Call it when no region is left and no command runs.
func (c *client) closeProcesses() {
	for _, p := range c.procs.all {
		p.release()
	}
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
	}
}
