package ctl

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// interpreter returns the dynamic linker of a program, empty if it has none.
func interpreter(p *elf.File) string {
	for _, h := range p.Progs {
		if h.Type == elf.PT_INTERP && h.Filesz < unix.PathMax {
			path := make([]byte, h.Filesz)
			n, _ := h.ReadAt(path, 0)
			return strings.TrimRight(string(path[:n]), "\x00")
		}
	}
	return ""
}

// elevated says why the kernel gives a program other rights than its user's; empty: it does not.
func elevated(program string) string {
	s, err := os.Stat(program)
	switch {
	case err != nil:
		return ""
	case s.Mode()&os.ModeSetuid != 0 && s.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()):
		return "is setuid"
	case s.Mode()&os.ModeSetgid != 0 && s.Sys().(*syscall.Stat_t).Gid != uint32(os.Getegid()):
		return "is setgid"
	}
	if n, err := unix.Getxattr(program, "security.capability", nil); err == nil && n > 0 && os.Geteuid() != 0 {
		return "has file capabilities"
	}
	return ""
}

// unsuited returns the reason for which the dynamic linker cannot load the preload library into a program. Without
// the library the program finds no device. The reason is a static link, another C library or processor type, or rights. unsuited
// returns "" if the library suits the program, or if it cannot judge the file (for example, a script).
func unsuited(program, library string) string {
	p, err := elf.Open(program)
	if err != nil {
		return ""
	}
	defer p.Close()
	if why := elevated(program); why != "" {
		return fmt.Sprintf("%s %s, so that the dynamic linker leaves the library out: it will find no device; run a copy of the file "+
			"without this", program, why)
	}
	if linker := interpreter(p); strings.Contains(linker, "ld-musl") {
		return fmt.Sprintf("%s is linked with musl (%s) and the library with glibc: it will find no device, or fail; use a program "+
			"of a distribution with glibc", program, linker)
	}
	if !slices.ContainsFunc(p.Progs, func(h *elf.Prog) bool { return h.Type == elf.PT_INTERP }) {
		return fmt.Sprintf("%s is linked statically, so that no library can be put in front of it: it will find no device "+
			"(programs that it starts will)", program)
	}
	l, err := elf.Open(library)
	if err != nil {
		return ""
	}
	defer l.Close()
	if p.Class == l.Class && p.Machine == l.Machine {
		return ""
	}
	return fmt.Sprintf("%s is a program for %v (%v) and %s for %v (%v), so that the dynamic linker leaves the library out: "+
		"ROCED_LIBRARY can name one that has been compiled for the program (make build CC=...)",
		program, p.Machine, p.Class, library, l.Machine, l.Class)
}
