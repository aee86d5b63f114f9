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

// process is a process in whose memory regions are, and who needs it: the client, and each
// region there.
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

// processFiles are the descriptors of a process: its memory and the map of it.
const processFiles = 2

// lost says why a request is about to fail. It runs on the shard, or the worker's goroutine.
func (c *client) lost(addr uint64, n int) {
	_ = c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x of a region are not there any more: the program has unmapped them, "+
		"has ended, or executes another program", n, addr)) // the completion tells the program
}

// release gives one reference back; the last one closes the descriptors.
func (p *process) release() {
	if p.refs.Add(-1) == 0 {
		p.Close()
		p.c.account.Add(quota.Descriptors, -processFiles)
	}
}

// passMemory takes the memory of a process for that which regions are in from now on:
// the client's own, or that of a child which uses its parent's context.
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

// adopt adds a process to those that have been passed.
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

// forgetProcesses makes room for others: processes without regions pass their memory again.
func (c *client) forgetProcesses() {
	for i, p := range c.procs.all {
		if p != c.proc && p.refs.Load() == 1 {
			c.procs.remove(i)
			p.release()
		}
	}
}

// distant returns memory of the client that is not shared with the daemon, and what keeps
// it. It must be there, and writable if the region is.
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

// open opens the memory of a client that has passed none, which takes the rights of a
// debugger.
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

// check reports whether a region may be made of memory of a process.
func (c *client) check(p *process, start, length uint64, access qp.Access) error {
	err := c.look(p, start, length, access&qp.AccessLocalWrite != 0)
	if err != nil {
		return c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x cannot be registered: %v", length, start, err))
	}
	return nil
}

// closeProcesses gives up the client's processes. No region is left, and no command is
// running.
func (c *client) closeProcesses() {
	for _, p := range c.procs.all {
		p.release()
	}
	if c.pidfd >= 0 {
		unix.Close(c.pidfd)
	}
}
