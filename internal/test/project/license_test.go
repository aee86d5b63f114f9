package project

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
)

const root = "../../.."

// glob lists the files of the tree that match a pattern. At least one must match.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s (%v)", pattern, err)
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestLicenses checks that the licence texts exist.
func TestLicenses(t *testing.T) {
	for name, sentence := range map[string]string{
		"LICENSE":                  "Apache License\n                           Version 2.0, January 2004",
		"bpf/LICENSE.GPL-2.0":      "GNU GENERAL PUBLIC LICENSE\n                       Version 2, June 1991",
		"bpf/LICENSE.BSD-2-Clause": "Redistributions in binary form must reproduce",
	} {
		if !bytes.Contains(read(t, name), []byte(sentence)) {
			t.Errorf("%s does not say %q", name, sentence)
		}
	}
}

// TestLicenseOfBPF checks that sources and compiled programs declare the same licence. The kernel compares a program's
// licence with a list (license_is_gpl_compatible in include/linux/license.h), and refuses some helpers to other
// licences.
func TestLicenseOfBPF(t *testing.T) {
	const identifier, module = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause", "Dual BSD/GPL"
	for _, name := range append(glob(t, "bpf/*/*.c"), glob(t, "bpf/*/*.h")...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head := bytes.TrimPrefix(text, []byte("//go:build ignore\n\n"))
		if !bytes.HasPrefix(head, []byte("/* "+identifier+" */\n")) {
			t.Errorf("%s does not begin with %s", name, identifier)
		}
	}
	for _, name := range glob(t, "bpf/*/*.o") {
		spec, err := ebpf.LoadCollectionSpec(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range spec.Programs {
			if p.License != module {
				t.Errorf("program %s of %s says %q, not %q: make generate", p.Name, name, p.License, module)
			}
		}
	}
}
