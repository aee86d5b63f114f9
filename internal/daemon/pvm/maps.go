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
	file       bool // backed by a file, which may be shorter than the mapping
}

// parseVMA parses a line such as:
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

// Fault explains in words why memory cannot be registered. It unwraps to EFAULT.
type Fault struct {
	Addr uint64 // first address that cannot be registered
	Why  string
}

func (f *Fault) Error() string { return fmt.Sprintf("memory at %#x %s", f.Addr, f.Why) }

// Unwrap returns EFAULT, the kernel's error for pages that it cannot pin.
func (f *Fault) Unwrap() error { return unix.EFAULT }

// Values of Fault.Why.
const (
	notMapped   = "is not mapped"
	notReadable = "may not be read by its own program"
	notWritable = "may not be written by its own program, and the region asks for IBV_ACCESS_LOCAL_WRITE"
	notInFile   = "lies behind the end of the file that is mapped there"
	allGone     = "is gone: its process has ended or executes another program"
)

// Check returns nil if the process may read, and write if write is set, all of [addr, addr+n). Otherwise it returns
// a Fault. n must be positive.
//
// The program may change its mappings right after Check. The daemon does not check again: a region outlives a later
// mprotect, as with hardware, which pins the pages. The kernel lets Write modify only pages that the program could
// write through its own /proc/self/mem.
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

// refuses returns the reason why v does not allow the access at addr, or "". v must end after addr.
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

// present reports whether the byte at addr can be read. A mapping may extend beyond the end of its file.
func (p *Process) present(addr uint64) bool {
	var b [1]byte
	return p.Read(addr, b[:])
}
