// Package environment knows what unmodified RDMA programs run with: the variables that put the preload library and
// a daemon's devices before them, and the same for containers.
package environment

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"roced.io/roced/verbs"
)

// LibraryName is the preload library.
const LibraryName = "libroced.so"

// RunDir is the variable that names the run directory; programs in Go need no other one.
const RunDir = "ROCED_RUN_DIR"

// explains makes the library print why a command has failed of which the program sees an
// error number only.
const explains = "ROCED_EXPLAIN"

// separators are what stands between the libraries of LD_PRELOAD.
const separators = ": "

// Variable is one of the environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Export is the command by which a shell takes the variable over.
func (v Variable) Export() string { return fmt.Sprintf("export %s=%s", v.Name, quote(v.Value)) }

// quote makes a word of a shell of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Of returns the variables for programs on the NICs of a run directory, or on one of them, having looked that a
// daemon is there which serves them.
func Of(runDir, nic string) ([]Variable, error) {
	dir, err := filepath.Abs(runDir)
	if err != nil {
		return nil, err
	}
	devices, err := verbs.Devices(dir)
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, Absent(dir)
	}
	tree := filepath.Join(dir, "sysfs")
	if nic != "" {
		tree = filepath.Join(dir, "nic", nic)
		if _, err := os.Stat(tree); err != nil || filepath.Base(nic) != nic {
			return nil, fmt.Errorf("the daemon of %s has no NIC %q", dir, nic)
		}
	}
	lib, err := Library()
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(lib, separators) {
		return nil, fmt.Errorf("LD_PRELOAD cannot name %q: it has a colon or a space; ROCED_LIBRARY can name a copy", lib)
	}
	return []Variable{{"LD_PRELOAD", preload(lib, os.Getenv("LD_PRELOAD"))}, {RunDir, dir}, {"ROCED_NIC", nic},
		{"SYSFS_PATH", tree}, {explains, cmp.Or(os.Getenv(explains), "1")}}, nil
}

// preload puts a library behind others of LD_PRELOAD, unless it is there: it stands for the
// kernel, so what others do with a program's calls (librspreload, sanitizers) they do first.
func preload(lib, others string) string {
	list := strings.FieldsFunc(others, func(r rune) bool { return strings.ContainsRune(separators, r) })
	if slices.Contains(list, lib) {
		return others
	}
	return strings.Join(append(list, lib), ":")
}

// Library finds the preload library: where ROCED_LIBRARY says, beside this
// program, or where packages put it.
func Library() (string, error) {
	if path := os.Getenv("ROCED_LIBRARY"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("ROCED_LIBRARY: %w", err)
		}
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	tried := []string{filepath.Join(dir, LibraryName), filepath.Join(dir, "..", "lib", "roced", LibraryName)}
	for _, path := range tried {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the preload library is in none of %s: make build makes it, with a C compiler (Debian: gcc); ROCED_LIBRARY can name it", strings.Join(tried, ", "))
}

// Program finds a program of ours: this one, one beside it, or where others look for programs.
func Program(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(name)
}
