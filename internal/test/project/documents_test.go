package project

import (
	"io/fs"
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
	return slices.Concat(glob(t, "*.md"), pages(t))
}

// pages returns the documents in docs.
func pages(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			names = append(names, path)
		}
		return err
	})
	if err != nil || len(names) < 50 {
		t.Fatalf("%d pages, %v", len(names), err)
	}
	return names
}

// TestReaders: the first paragraph of each page says for whom it is.
func TestReaders(t *testing.T) {
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if parts := strings.SplitN(string(text), "\n\n", 3); len(parts) < 3 || !strings.HasPrefix(parts[0], "# ") || !strings.HasPrefix(parts[1], "For ") {
			t.Errorf("%s: begins neither with a title nor with its readers (\"For users of ...: ...\")", name)
		}
	}
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
