package pvm

import (
	"bufio"
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

// Check reports whether all of [addr, addr+n) is memory of the process that may be
// read and, if write is set, written by it; EFAULT if not, like a kernel that
// pins the pages. n > 0.
func (p *Process) Check(addr, n uint64, write bool) error {
	end := addr + n
	if end < addr {
		return unix.EFAULT
	}
	lines := bufio.NewScanner(&mapsReader{fd: p.maps})
	for addr < end && lines.Scan() {
		v, ok := parseVMA(lines.Text())
		if !ok || v.end <= addr {
			continue
		}
		if v.start > addr || !v.read || write && !v.write {
			return unix.EFAULT
		}
		addr = min(v.end, end)
		if v.file && !p.present(addr-1) {
			return unix.EFAULT
		}
	}
	if addr < end {
		return unix.EFAULT
	}
	return nil
}

// present reports whether there is a byte at addr: a mapping may reach beyond the
// end of its file.
func (p *Process) present(addr uint64) bool {
	var b [1]byte
	return p.Read(addr, b[:])
}
