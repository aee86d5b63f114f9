package ctl

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// executable writes the ELF headers of a program or library.
func executable(t *testing.T, class elf.Class, machine elf.Machine, dynamic bool) string {
	t.Helper()
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	kind := uint32(elf.PT_LOAD)
	if dynamic {
		kind = uint32(elf.PT_INTERP)
	}
	var h, p any
	if class == elf.ELFCLASS32 {
		h = elf.Header32{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 52, Ehsize: 52, Phentsize: 32, Phnum: 1, Shentsize: 40}
		p = elf.Prog32{Type: kind}
	} else {
		h = elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64}
		p = elf.Prog64{Type: kind}
	}
	var b bytes.Buffer
	for _, v := range []any{h, p} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnsuited(t *testing.T) {
	lib := executable(t, elf.ELFCLASS64, elf.EM_X86_64, false)
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, program, library, want string }{
		{"alike", executable(t, elf.ELFCLASS64, elf.EM_X86_64, true), lib, ""},
		{"static", executable(t, elf.ELFCLASS64, elf.EM_X86_64, false), lib, "linked statically"},
		{"32 bits", executable(t, elf.ELFCLASS32, elf.EM_386, true), lib, "program for EM_386 (ELFCLASS32)"},
		{"x32", executable(t, elf.ELFCLASS32, elf.EM_X86_64, true), lib, "program for EM_X86_64 (ELFCLASS32)"},
		{"another processor", executable(t, elf.ELFCLASS64, elf.EM_AARCH64, true), lib, "program for EM_AARCH64"},
		{"a script", text, lib, ""},
		{"no library", executable(t, elf.ELFCLASS64, elf.EM_X86_64, true), text, ""},
		{"nothing", "/nonexistent", lib, ""},
	} {
		got := unsuited(c.program, c.library)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestExecTells runs a program that cannot load the library. The program must run, and rocectl must print a warning.
func TestExecTells(t *testing.T) {
	runDir, _ := startHost(t)
	other := executable(t, elf.ELFCLASS32, elf.EM_386, false)
	cmd := rocectl(t, []string{"ROCED_LIBRARY=" + other}, "--run-dir", runDir, "exec", "--", "sh", "-c", "exit 7")
	out, err := cmd.CombinedOutput()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 7 || strings.Count(string(out), "the dynamic linker leaves the library out") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
