package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// try applies m to the files below t.root, runs the tests of its mechanism, and undoes m. It returns nil if a test fails.
func (t *tree) try(m *mutation) error {
	p, err := t.place(m)
	if err != nil {
		return err
	}
	name := filepath.Join(t.root, p.file)
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, []byte(p.mutate(string(before), m)), 0o644); err != nil {
		return err
	}
	defer os.WriteFile(name, before, 0o644)
	for _, name := range m.tests {
		dir, err := t.testDir(m, name)
		if err != nil {
			return err
		}
		_, test := splitTest(name)
		out, err := runTests(t.root, dir, test)
		if strings.Contains(string(out), "[build failed]") {
			return fmt.Errorf("does not compile:\n%s", out)
		}
		if err != nil {
			return nil
		}
		if strings.Contains(string(out), "no tests to run") {
			return fmt.Errorf("%s has no %s", dir, test)
		}
	}
	return fmt.Errorf("survives %s", strings.Join(m.tests, ", "))
}

// runTests runs tests of the package in dir. Without -trimpath each copy of the tree would compile all packages anew.
func runTests(root, dir string, tests ...string) (out []byte, err error) {
	cmd := exec.Command("go", "test", "-trimpath", "-vet=off", "-count=1", "-timeout", timeout(tests), "-run", pattern(tests))
	cmd.Dir = filepath.Join(root, dir) // may be of another module
	return cmd.CombinedOutput()
}

func timeout(tests []string) string { return (3 * time.Minute * time.Duration(len(tests))).String() }

// pattern returns the expression for -run that matches only tests.
func pattern(tests []string) string {
	var match []string
	for _, test := range tests {
		match = append(match, "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
	}
	return strings.Join(match, "|")
}
