package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLists: the lists are well formed, each mechanism of the documents has a mutation, and all mutations still apply.
// `make mutants` checks that their tests fail.
func TestLists(t *testing.T) {
	t.Chdir("../..")
	files, err := listFiles()
	if err != nil {
		t.Fatal(err)
	}
	p, err := readProject(".", files)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(); err != nil {
		t.Error(err)
	}
}

// TestSelection: flags select by document, mechanism and package.
func TestSelection(t *testing.T) {
	p := &project{rows: []row{{doc: "d", mechanism: "X: rule"}, {doc: "e", mechanism: "Y: law"}}, list: parse(t, "# X: rule\nfunc f: TestA\n- a\n# Y: law\nfunc g: TestA\n- a\n")}
	for _, c := range []struct {
		selection
		want int
	}{{selection{}, 2}, {selection{doc: "d"}, 1}, {selection{only: "Y: l"}, 1}, {selection{dir: "./a"}, 2}, {selection{dir: "b"}, 0}} {
		if n := len(p.selected(c.selection)); n != c.want {
			t.Errorf("%+v selects %d mutations, want %d", c.selection, n, c.want)
		}
	}
}

// parse parses the mutations of a list in folder a.
func parse(t *testing.T, text string) []mutation {
	t.Helper()
	list, err := parseList("a/mutants.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// wants reports an error without the text want, which is empty if none is expected.
func wants(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestForm: malformed lists are refused, and a list is written as it is read.
func TestForm(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"complete", "# X: rule\nfunc f: TestA b.TestB/x\n- a\n- \n- \tb\n+ c\nvar v: TestA\n- x\n", ""},
		{"nothing replaced", "# X: rule\nfunc f: TestA\n", "without"},
		{"no mechanism", "func f: TestA\n- a\n", "without"},
		{"no tests", "# X: rule\nfunc f\n- a\n", "without"},
		{"path", "# X: rule\na/f.go\n- a\n", "mutants.txt:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := parseList("a/mutants.txt", c.text)
			wants(t, err, c.want)
			if want := head + "\n" + strings.ReplaceAll(c.text, "- \n", "-\n"); err == nil && formatList(list) != want {
				t.Errorf("%q, want %q", formatList(list), want)
			}
		})
	}
}

// TestRows: differences of the lists and the documents are found.
func TestRows(t *testing.T) {
	if _, err := parseRows("d", "# X\n"); err == nil {
		t.Error("a document without mechanisms is accepted")
	}
	table := "## X\n\n| mechanism | section | file | test |\n|---|---|---|---|\n"
	for _, c := range []struct{ rows, want string }{
		{"| rule one | 1 | `a.go` | `TestA` |\n", ""},
		{"| rule one | 1 | `a.go` | `TestB` |\n", "does not name TestA"},
		{"| law | 1 | `a.go` | `TestA` |\n", "no document"},
		{"| rule one | 1 | `a.go` | `TestA` |\n| rule two | 1 | `a.go` | `TestA` |\n", "several mechanisms"},
		{"| rule one | 1 | `a.go` | `TestA` |\n| law | 1 | `a.go` | `TestA` |\n", "no mutation of X: law"},
	} {
		rows, err := parseRows("d", table+c.rows)
		if err != nil {
			t.Fatal(err)
		}
		wants(t, matchRows(parse(t, "# X: rule\nfunc f: b.TestA\n- a\n"), rows), c.want)
	}
}

// write writes files below a new folder. It returns the folder and their names.
func write(t *testing.T, files map[string]string) (dir string, names []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return dir, names
}

// TestCheck: a mutation applies to one place of its declaration, and its tests exist.
func TestCheck(t *testing.T) {
	const test = "package x\n\nfunc TestA(t *testing.T) {}\n"
	root, names := write(t, map[string]string{
		"a/a.go":         "package a\n\nconst (\n\tx = 1\n\ty = 1\n)\n\ntype s[T any] struct {\n\tn int\n}\n\nfunc (p *s[T]) f() {\n\tp.n++\n}\n\nfunc f() {\n\tx++\n\ty++\n\tx++\n}\n",
		"a/a.c":          "int g(void);\nint g(void)\n{\n\treturn 1;\n}\nstatic int h(void) { return 1; }\nint i(void) {\n\treturn 1;\n}\n",
		"a/a_test.go":    test,
		"b/b_test.go":    test,
		"c/d/c_test.go":  test,
		"e/d/d_test.go":  test,
		"b/more_test.go": "package x\n\nfunc TestB(t *testing.T) {}\n",
	})
	tree, err := readTree(root, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ mutation, want string }{
		{"func s.f: TestA\n-   p.n++\n", ""},
		{"const y: TestA\n- y = 1\n", ""},
		{"const y: TestA\n- x = 1\n", "0 times"},
		{"type s: TestA\n- n int\n", ""},
		{"func f: TestA\n- x++\n", "2 times"},
		{"func f: TestA\n- y++\n- x++\n", ""},
		{"func k: TestA\n- x++\n", "a has no func k"},
		{"func g: TestA\n- return 1;\n", ""},
		{"func h: TestA\n- static int h(void) { return 1; }\n", ""},
		{"func i: TestA\n- return 1;\n", ""},
		{"func f: b.TestA/script\n- y++\n", ""},
		{"func f: TestB\n- y++\n", "a has no TestB"},
		{"func f: d.TestB\n- y++\n", "d has no TestB"},
		{"func f: d.TestA\n- y++\n", "ambiguous"},
	} {
		list := parse(t, "# X: rule\n"+c.mutation)
		t.Run(c.mutation, func(t *testing.T) { wants(t, tree.check(&list[0]), c.want) })
	}
}

// TestTry applies mutations to a small module.
func TestTry(t *testing.T) {
	root, names := write(t, map[string]string{
		"go.mod": "module m\n", "a/f.go": "package a\n\nfunc F() int {\n\treturn 1\n}\n",
		"a/f_test.go": "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	tree, err := readTree(root, names)
	if err != nil {
		t.Fatal(err)
	}
	tree.addTest("TestG", "a")
	for _, c := range []struct{ insert, test, want string }{
		{"return 2", "TestF", ""},
		{"return 1 + 0", "TestF", "survives"},
		{"return", "TestF", "compile"},
		{"return 2", "TestG", "has no TestG"},
	} {
		list := parse(t, "# X: rule\nfunc F: "+c.test+"\n- return 1\n+ "+c.insert+"\n")
		wants(t, tree.try(&list[0]), c.want)
	}
}
