package ctl

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
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

// linked returns a dynamic program of this linker.
func linked(t *testing.T, linker string) string {
	t.Helper()
	path := executable(t, elf.ELFCLASS64, elf.EM_X86_64, true)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b[64+8:], uint64(len(b))) // the program header's offset and size in the file
	binary.LittleEndian.PutUint64(b[64+32:], uint64(len(linker)+1))
	if err := os.WriteFile(path, append(b, linker+"\x00"...), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestElevated: programs with other rights than their user's do not load the library.
func TestElevated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for files of another user")
	}
	path := executable(t, elf.ELFCLASS64, elf.EM_X86_64, true)
	if err := errors.Join(os.Chown(path, 1, 1), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0: "", os.ModeSetuid: "is setuid", os.ModeSetgid: "is setgid"} {
		if err := os.Chmod(path, 0o755|mode); err != nil {
			t.Fatal(err)
		}
		if got := unsuited(path, path); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v: %q", mode, got)
		}
	}
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
		{"musl", linked(t, "/lib/ld-musl-x86_64.so.1"), lib, "linked with musl (/lib/ld-musl-x86_64.so.1)"},
		{"glibc", linked(t, "/lib64/ld-linux-x86-64.so.2"), lib, ""},
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
