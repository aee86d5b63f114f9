// Package pvm gives access to the memory of another process, which has not been
// set up to be shared: the regions that a program registers anywhere.
//
// The kernel has two ways to it. process_vm_readv names a process by its number,
// and so would follow it across execve into a program with more rights, or reach
// whoever has the number next; and it waits for a page that the process handles
// by userfaultfd itself, for ever if that likes. A descriptor of /proc/PID/mem
// stands for one address space: when that is gone, accesses fail, and a page that
// does not come at once is an error. It is as fast (BenchmarkRead).
package pvm

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotThere says that a process is not the one that was meant, or may not be
// accessed on behalf of its user: it has more rights than that.
var ErrNotThere = errors.New("pvm: no access to the process")

// Process is the address space of a process. It stays the same when the process
// executes another program: then there is nothing left in it.
type Process struct {
	mem, maps int
	// Lost, if set, hears of an access to a region that has failed: n bytes at addr.
	Lost func(addr uint64, n int)
}

// Open opens the memory of the process pid, which belongs to the user uid and is
// the one that pidfd stands for. It fails with ErrNotThere if pid has passed to
// another process, and if the process has rights that its user has not (a
// set-user-ID program): what is done for the user must not reach that.
func Open(pid int, uid uint32, pidfd int) (*Process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	mem, err := unix.Open(dir+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	maps, err := unix.Open(dir+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(mem)
		return nil, fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	p := &Process{mem: mem, maps: maps}
	if err := p.belongs(dir, uid, pidfd); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// belongs runs after the files have been opened: if the process executes another
// program or its number is reused meanwhile, they belong to an address space that
// is gone.
func (p *Process) belongs(dir string, uid uint32, pidfd int) error {
	var st unix.Stat_t
	if err := unix.Stat(dir+"/mem", &st); err != nil {
		return fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	if st.Uid != uid && uid != 0 {
		return ErrNotThere // proc(5): files of a process that may not be dumped are root's
	}
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && err != unix.EPERM {
		return fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	return nil
}

// Close gives the process up.
func (p *Process) Close() {
	unix.Close(p.mem)
	unix.Close(p.maps)
}

// Read fills b with what is at addr.
func (p *Process) Read(addr uint64, b []byte) bool {
	return p.whole(addr, b, unix.Pread)
}

// Write places b at addr, lower bytes first. A page that the process may not write
// is written all the same if it is its own copy (PTRACE semantics): rights are
// checked when a region is registered.
func (p *Process) Write(addr uint64, b []byte) bool {
	return p.whole(addr, b, unix.Pwrite)
}

func (p *Process) whole(addr uint64, b []byte, op func(int, []byte, int64) (int, error)) bool {
	for len(b) > 0 {
		n, err := op(p.mem, b, int64(addr))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return false
		}
		addr, b = addr+uint64(n), b[n:]
	}
	return true
}
