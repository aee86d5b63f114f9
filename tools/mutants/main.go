// Command mutants removes the mechanisms of docs/results/mechanisms-transports.md, or of another document, one after
// the other. For each it runs the tests that the document names: at least one must fail. It works on a copy of the
// tree, never in place.
//
// The list is mutants.txt. Other documents have their own lists: docs/results/mechanisms-ports.md has ports.txt,
// docs/results/mechanisms-simulator.md has sim.txt, docs/results/mechanisms-flor.md has flor.txt, and
// docs/results/mechanisms-drill.md has drill.txt. A list is also wrong if a mutation no longer applies, or if a row of the document has no mutation.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	list := flag.String("list", "tools/mutants/mutants.txt", "the mutations")
	doc := flag.String("doc", "docs/results/mechanisms-transports.md", "the document with the mechanisms and their tests")
	only := flag.String("only", "", "run only mutations whose transport and mechanism, as in \"MELO: swapping\", contain this")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: go run ./tools/mutants [flags]\n\nChecks that a test fails without each mechanism of %s.\nExit status: 0 if so, 1 if a mutation survives or does not apply, 2 upon wrong usage.\n\n", *doc)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*list, *doc, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run checks the list against the document and then tries each mutation.
func run(list, doc, only string) error {
	mutations, err := readMutations(list)
	if err != nil {
		return err
	}
	rows, err := readRows(doc)
	if err != nil {
		return err
	}
	if err := match(mutations, rows); err != nil {
		return err
	}
	mutations = slices.DeleteFunc(mutations, func(m mutation) bool { return !strings.Contains(m.transport+": "+m.mechanism, only) })
	dir, err := copyTree()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var faults []error
	for i, m := range mutations {
		begun := time.Now()
		err := m.try(dir)
		verdict := "killed"
		if err != nil {
			verdict = err.Error()
			faults = append(faults, fmt.Errorf("%s: %s: %w", m.transport, m.mechanism, err))
		}
		fmt.Printf("%3d/%d %5.1fs %s: %s: %s\n", i+1, len(mutations), time.Since(begun).Seconds(), m.transport, m.mechanism, verdict)
	}
	return errors.Join(faults...)
}

// copyTree copies the files that git tracks, in their current state.
func copyTree() (dir string, err error) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return "", err
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if err := copyFile(name, filepath.Join(dir, name)); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil // deleted, or a link
	}
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}

// try applies m to the copy in dir, runs the tests of its mechanism, and undoes m. It returns nil if the tests fail.
func (m *mutation) try(dir string) error {
	name := filepath.Join(dir, m.file)
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := strings.Count(string(before), m.remove); n != 1 {
		return fmt.Errorf("%s has what is to be replaced %d times, want once", m.file, n)
	}
	after := strings.Replace(string(before), m.remove, m.insert, 1)
	if err := os.WriteFile(name, []byte(after), 0o644); err != nil {
		return err
	}
	defer os.WriteFile(name, before, 0o644)
	for _, name := range m.tests {
		out, err := test(dir, m.pkg, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
		if strings.Contains(string(out), "[build failed]") {
			return fmt.Errorf("does not compile:\n%s", out)
		}
		if err != nil {
			return nil
		}
		if strings.Contains(string(out), "no tests to run") {
			return fmt.Errorf("%s has no %s", m.pkg, name)
		}
	}
	return fmt.Errorf("survives %s", strings.Join(m.tests, ", "))
}

// test runs the tests of a package whose names match.
func test(dir, pkg, match string) (out []byte, err error) {
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=3m", "-run", match, pkg)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}
