// Package pvm accesses unshared memory of another process: the regions that a program registers anywhere in its
// address space.
//
// The kernel offers two interfaces. process_vm_readv names a process by its number. It follows that number across
// execve into a program with more rights, or to the next owner of the number. It also blocks on pages that the
// process handles with userfaultfd, possibly forever.
//
// A descriptor of /proc/PID/mem is bound to one address space. Accesses fail once that address space is gone. A page
// that is not available at once is an error. The descriptor is as fast as process_vm_readv (BenchmarkRead).
package pvm

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotThere reports that the PID names another process, or that the process has more rights than its user.
var ErrNotThere = errors.New("pvm: no access to the process")

// Process is the address space of a process. After execve it is empty, and every access fails.
type Process struct {
	mem, maps int
	// Lost, if set, is called when an access to a region fails: n bytes at addr.
	Lost func(addr uint64, n int)
}

// Open opens the memory of process pid, which belongs to user uid and to which pidfd refers. It returns ErrNotThere
// in two cases:
//   - The PID belongs to another process now.
//   - The process has rights that its user lacks (a set-user-ID program). Requests of the user must not reach its
//     memory.
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

// belongs must run after both files are open. If the process calls execve or its PID is reused meanwhile, the files
// refer to an address space that is gone.
func (p *Process) belongs(dir string, uid uint32, pidfd int) error {
	var st unix.Stat_t
	if err := unix.Stat(dir+"/mem", &st); err != nil {
		return fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	if st.Uid != uid && uid != 0 {
		return ErrNotThere // proc(5): root owns the files of a process that is not dumpable
	}
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && err != unix.EPERM {
		return fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	return nil
}

// Close closes the descriptors.
func (p *Process) Close() {
	unix.Close(p.mem)
	unix.Close(p.maps)
}

// Read fills b with the bytes at addr. It returns false on failure.
func (p *Process) Read(addr uint64, b []byte) bool {
	return p.whole(addr, b, unix.Pread)
}

// Write copies b to addr, in ascending order of addresses. It returns false on failure. Write also modifies private
// pages that the process may not write (PTRACE semantics), so callers check rights at registration.
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
