package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestList: the lists are well formed, each mechanism of the documents has an entry, and all entries still apply. `make
// mutants` checks that their tests fail.
func TestList(t *testing.T) {
	t.Chdir("../..")
	for list, doc := range map[string]string{"mutants.txt": "transports", "ports.txt": "ports", "sim.txt": "simulator", "clients.txt": "clients", "flor.txt": "flor", "drill.txt": "drill"} {
		t.Run(list, func(t *testing.T) {
			checkList(t, filepath.Join("tools/mutants", list), filepath.Join("docs/results", "mechanisms-"+doc+".md"))
		})
	}
}

func checkList(t *testing.T, file, doc string) {
	list, err := readMutations(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readRows(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := match(list, rows); err != nil {
		t.Error(err)
	}
	for _, m := range list {
		b, err := os.ReadFile(m.file)
		if err != nil {
			t.Errorf("line %d: %v", m.line, err)
		} else if n := strings.Count(string(b), m.remove); n != 1 {
			t.Errorf("line %d: %s has what is to be replaced %d times, want once", m.line, m.file, n)
		}
	}
}

// TestFaults: errors in the list and in the document are found.
func TestFaults(t *testing.T) {
	file := func(s string) string {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const entry = "# X: rule\na.go\n- a\n+ b\n./a TestA\n"
	if _, err := readMutations(file("# X: rule\na.go\n./a TestA\n")); err == nil {
		t.Error("an entry that replaces nothing is accepted")
	}
	if _, err := readRows(file("# X\n")); err == nil {
		t.Error("a document without mechanisms is accepted")
	}
	table := "## X\n\n| mechanism | section | file | test |\n|---|---|---|---|\n"
	for _, c := range []struct{ rows, want string }{
		{"| rule one | 1 | `a.go` | `TestA` |\n", ""},
		{"| rule one | 1 | `a.go` | `TestB` |\n", "does not name TestA"},
		{"| law | 1 | `a.go` | `TestA` |\n", "no mechanism"},
		{"| rule one | 1 | `a.go` | `TestA` |\n| law | 1 | `a.go` | `TestA` |\n", "no mutation of X: law"},
	} {
		list, err := readMutations(file(entry))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := readRows(file(table + c.rows))
		if err != nil {
			t.Fatal(err)
		}
		if err := match(list, rows); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.rows, err, c.want)
		}
	}
}

// TestTry applies a mutation to a small module.
func TestTry(t *testing.T) {
	for _, c := range []struct{ insert, test, want string }{
		{"func F() int { return 2 }\n", "TestF", ""},
		{"func F() int { return 1 + 0 }\n", "TestF", "survives"},
		{"func F() int { return }\n", "TestF", "compile"},
		{"func F() int { return 2 }\n", "TestG", "has no TestG"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod": "module m\n", "f.go": "package m\n\nfunc F() int { return 1 }\n",
			"f_test.go": "package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := mutation{file: "f.go", remove: "func F() int { return 1 }\n", insert: c.insert, pkg: ".", tests: []string{c.test}}
		if err := m.try(dir); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
