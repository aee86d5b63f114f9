package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRebase: mutations follow their code to other declarations and packages, and their tests to other packages.
func TestRebase(t *testing.T) {
	const (
		list = head + "\n# X: rule\nfunc s.f: TestA\n- if n > 0 {\n+ if n > m {\n"
		test = "package x\n\nfunc TestA(t *testing.T) {}\n"
		doc  = "## X\n\n| mechanism | test |\n|---|---|\n| rule | `TestA` |\n"
		body = " {\n\tif n > 0 {\n\t}\n}\n"
		none = ""
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		lists map[string]string
		want  string // in the error
	}{
		{"unchanged", map[string]string{"a/a.go": "package a\n\nfunc (s *s) f()" + body, "b/b.go": "package b\n\nfunc (s *s) f()" + body, "a/a_test.go": test}, map[string]string{"a": list}, ""},
		{"other function", map[string]string{"a/a.go": "package a\n\nfunc g()" + body, "b/b.go": "package b\n\nfunc h()" + body, "a/a_test.go": test},
			map[string]string{"a": head + "\n# X: rule\nfunc g: TestA\n- if n > 0 {\n+ if n > m {\n"}, ""},
		{"other package", map[string]string{"a/a.go": "package a\n\nfunc h()" + body, "b/b.go": "package b\n\nfunc (s *s) f()" + body, "a/a_test.go": test},
			map[string]string{"a": none, "b": head + "\n# X: rule\nfunc s.f: a.TestA\n- if n > 0 {\n+ if n > m {\n"}, ""},
		{"other package with test", map[string]string{"b/b.go": "package b\n\nfunc h()" + body, "b/b_test.go": test},
			map[string]string{"a": none, "b": head + "\n# X: rule\nfunc h: TestA\n- if n > 0 {\n+ if n > m {\n"}, ""},
		{"exported", map[string]string{"b/b.go": "package b\n\nfunc (s *S) F() {\n\tif N > 0 {\n\t}\n}\n", "b/b_test.go": test},
			map[string]string{"a": none, "b": head + "\n# X: rule\nfunc S.F: TestA\n- if N > 0 {\n+ if N > m {\n"}, ""},
		{"other test package", map[string]string{"a/a.go": "package a\n\nfunc (s *s) f()" + body, "b/b_test.go": test},
			map[string]string{"a": head + "\n# X: rule\nfunc s.f: b.TestA\n- if n > 0 {\n+ if n > m {\n"}, ""},
		{"ambiguous", map[string]string{"a/a.go": "package a\n\nfunc g()" + body + "\nfunc h()" + body, "a/a_test.go": test}, map[string]string{"a": list}, "a/a.go:4: func g: if n > 0 {"},
		{"changed", map[string]string{"a/a.go": "package a\n\nfunc (s *s) f() {\n\tif n > 1 {\n\t}\n}\n", "a/a_test.go": test}, map[string]string{"a": list}, "a/a.go:4: func s.f: if n > 1 {"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.files["a/mutants.txt"] = list
			c.files["docs/results/mechanisms-d.md"] = doc
			root, names := write(t, c.files)
			wants(t, rebaseTree(root, names), c.want)
			for dir, want := range c.lists {
				if b, err := os.ReadFile(filepath.Join(root, dir, listName)); string(b) != want || (err != nil) != (want == none) {
					t.Errorf("list of %s: %q, want %q", dir, b, want)
				}
			}
		})
	}
}
