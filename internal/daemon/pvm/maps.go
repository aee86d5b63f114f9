package pvm

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// vma is a line of /proc/PID/maps (proc(5)).
type vma struct {
	start, end uint64
	read       bool
	write      bool
	file       bool // backed by a file, which may be shorter
}

// parseVMA reads a line such as
//
//	7f0000000000-7f0000001000 rw-p 00000000 00:00 0    [stack]
func parseVMA(line string) (v vma, ok bool) {
	f := strings.Fields(line)
	if len(f) < 5 || len(f[1]) != 4 {
		return v, false
	}
	from, to, ok := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err1 != nil || err2 != nil || start >= end {
		return v, false
	}
	return vma{start, end, f[1][0] == 'r', f[1][1] == 'w', f[4] != "0"}, true
}

// mapsReader reads /proc/PID/maps from its beginning.
type mapsReader struct {
	fd  int
	off int64
}

func (r *mapsReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Pread(r.fd, b, r.off)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			return 0, io.EOF
		}
		r.off += int64(max(n, 0))
		return max(n, 0), err
	}
}

// Fault says why memory cannot be registered, in words; it is EFAULT.
type Fault struct {
	Addr uint64 // where
	Why  string
}

// Error describes the fault.
func (f *Fault) Error() string { return fmt.Sprintf("memory at %#x %s", f.Addr, f.Why) }

// Unwrap is what a kernel says that cannot pin the pages.
func (f *Fault) Unwrap() error { return unix.EFAULT }

// What is wrong with memory.
const (
	notMapped   = "is not mapped"
	notReadable = "may not be read by its own program"
	notWritable = "may not be written by its own program, and the region asks for IBV_ACCESS_LOCAL_WRITE"
	notInFile   = "lies behind the end of the file that is mapped there"
	allGone     = "is gone: its process has ended or executes another program"
)

// Check reports whether all of [addr, addr+n) is memory of the process that may be
// read and, if write is set, written by it; a Fault if not. n > 0.
//
// What it has found may change at once, by the program's own doing, and is not looked at
// again: as with hardware, which has pinned the pages, a region outlives a later
// mprotect(). The kernel writes no page by Write that the program could not write through
// its own /proc/self/mem.
func (p *Process) Check(addr, n uint64, write bool) error {
	end := addr + n
	if end < addr {
		return &Fault{addr, notMapped}
	}
	lines := bufio.NewScanner(&mapsReader{fd: p.maps})
	seen := false
	for addr < end && lines.Scan() {
		v, ok := parseVMA(lines.Text())
		seen = seen || ok
		if !ok || v.end <= addr {
			continue
		}
		if why := v.refuses(addr, write); why != "" {
			return &Fault{addr, why}
		}
		addr = min(v.end, end)
		if v.file && !p.present(addr-1) {
			return &Fault{addr - 1, notInFile}
		}
	}
	switch {
	case !seen:
		return &Fault{addr, allGone}
	case addr < end:
		return &Fault{addr, notMapped}
	}
	return nil
}

// refuses says why memory from addr on, which does not lie before v, cannot be had.
func (v *vma) refuses(addr uint64, write bool) string {
	switch {
	case v.start > addr:
		return notMapped
	case !v.read:
		return notReadable
	case write && !v.write:
		return notWritable
	}
	return ""
}

// present reports whether there is a byte at addr: a mapping may reach beyond the
// end of its file.
func (p *Process) present(addr uint64) bool {
	var b [1]byte
	return p.Read(addr, b[:])
}
