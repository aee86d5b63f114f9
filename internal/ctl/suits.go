package ctl

import (
	"debug/elf"
	"fmt"
	"slices"
)

// unsuited returns the reason for which the dynamic linker cannot load the preload library into a program. Without
// the library the program finds no device. The reason is a static link or a different processor type. unsuited
// returns "" if the library suits the program, or if it cannot judge the file (for example, a script).
func unsuited(program, library string) string {
	p, err := elf.Open(program)
	if err != nil {
		return ""
	}
	defer p.Close()
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
