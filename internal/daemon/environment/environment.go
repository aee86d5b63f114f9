// Package environment builds the environment of unmodified RDMA programs, on this host and in containers. Its
// variables select the preload library and a daemon's devices.
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

// LibraryName is the file name of the preload library.
const LibraryName = "libroced.so"

// RunDir is the variable that names the run directory. Go programs need only this variable.
const RunDir = "ROCED_RUN_DIR"

// Report is the variable that names the socket for reports of traffic (docs/reference/control-protocol.md, EXT_REPORT).
const Report = "ROCED_REPORT"

// explains makes the library print the reason of a failed command. The program itself gets only an error number.
const explains = "ROCED_EXPLAIN"

// separators are the characters that separate the libraries in LD_PRELOAD.
const separators = ": "

// mrcName is the file name of the library of MRC, which lies beside the preload library.
const mrcName = "libmrc.so"

// libraryPath is the variable by which programs find the library of MRC.
const libraryPath = "LD_LIBRARY_PATH"

// Variable is an environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Export returns the shell command that sets the variable.
func (v Variable) Export() string { return fmt.Sprintf("export %s=%s", v.Name, quote(v.Value)) }

// quote quotes s for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Of returns the variables for programs on the NICs of a run directory, or on the NIC named nic. It returns an error
// if no daemon serves them.
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
		return nil, fmt.Errorf("LD_PRELOAD cannot name %q: the path has a colon or a space; set ROCED_LIBRARY to a copy of the library", lib)
	}
	vars := []Variable{{"LD_PRELOAD", preload(lib, os.Getenv("LD_PRELOAD"))}, {RunDir, dir}, {"ROCED_NIC", nic},
		{"SYSFS_PATH", tree}, {explains, cmp.Or(os.Getenv(explains), "1")}}
	if folder := filepath.Dir(lib); exists(filepath.Join(folder, mrcName)) {
		vars = append(vars, Variable{libraryPath, prepend(folder, os.Getenv(libraryPath))})
	}
	return vars, nil
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prepend puts a folder before the others of LD_LIBRARY_PATH: libraries of the same names, for real NICs, do not work
// with a daemon.
func prepend(folder, others string) string {
	list := slices.DeleteFunc(strings.Split(others, ":"), func(s string) bool { return s == folder || s == "" })
	return strings.Join(append([]string{folder}, list...), ":")
}

// preload appends a library to LD_PRELOAD, unless it is already there. The library replaces the kernel, so other
// libraries (librspreload, sanitizers) must intercept a program's calls first.
func preload(lib, others string) string {
	list := strings.FieldsFunc(others, func(r rune) bool { return strings.ContainsRune(separators, r) })
	if slices.Contains(list, lib) {
		return others
	}
	return strings.Join(append(list, lib), ":")
}

// Library finds the preload library: at ROCED_LIBRARY, beside this program, or in the install path of packages.
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
	return "", fmt.Errorf("no preload library in %s: build it with make build and a C compiler (Debian: gcc), or set ROCED_LIBRARY to its path", strings.Join(tried, ", "))
}

// Program finds a program of this project: this program itself, a file beside it, or a file in PATH.
func Program(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(name)
}
