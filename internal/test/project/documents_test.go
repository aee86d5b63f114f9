package project

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	makes    = regexp.MustCompile(`\bmake ([a-z][a-z-]*[a-z])`)
	target   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	inFolder = regexp.MustCompile("`(\\.?[a-z][\\w.-]*/[\\w./-]*)`")
	packages = regexp.MustCompile(`^[a-z0-9]+\.(net|org|com)/`) // other projects
)

// documents returns all documents. TestLinks checks all of them, TestNamed those of the root.
func documents(t *testing.T) []string {
	t.Helper()
	return slices.Concat(glob(t, "*.md"), glob(t, "docs/*.md"), glob(t, "docs/*/*.md"))
}

func exists(elem ...string) bool {
	_, err := os.Stat(filepath.Join(elem...))
	return err == nil
}

// TestLinks checks that linked files exist.
func TestLinks(t *testing.T) {
	n := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			if !exists(filepath.Dir(name), m[1]) {
				t.Errorf("%s: linked file %s does not exist", name, m[1])
			}
		}
	}
	if n < 50 {
		t.Errorf("found only %d links", n)
	}
}

// TestNamed checks that files, folders and make targets in CONTRIBUTING, SECURITY and CHANGELOG exist.
func TestNamed(t *testing.T) {
	var targets []string
	for _, m := range target.FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		targets = append(targets, m[1])
	}
	commands, paths := 0, 0
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		text := string(read(t, name))
		for _, m := range makes.FindAllStringSubmatch(text, -1) {
			commands++
			if !slices.Contains(targets, m[1]) {
				t.Errorf("%s: make target %s does not exist", name, m[1])
			}
		}
		for _, m := range inFolder.FindAllStringSubmatch(text, -1) {
			if packages.MatchString(m[1]) {
				continue
			}
			paths++
			if !exists(root, m[1]) {
				t.Errorf("%s: path %s does not exist", name, m[1])
			}
		}
	}
	if commands < 10 || paths < 20 {
		t.Errorf("found only %d commands and %d paths", commands, paths)
	}
}
