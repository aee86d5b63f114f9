// Package api compares the exported API of the public packages with a golden file,
// so that each change of it is deliberate.
package api

import (
	"flag"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../../.."
	golden = "testdata/api.txt"
)

// stable lists the packages with a promise of stability.
var stable = []string{
	"bth/layers", "ccalgo", "entry/control", "entry/daemon", "entry/local", "entry/simtest", "entry/simulator", "flor", "plugin/balance", "plugin/mono", "plugin/param", "verbs",
}

// unstable lists the folders whose packages may be imported without a promise.
var unstable = []string{"bpf", "bth", "drill", "flor/engine", "otg", "path", "port", "qp", "reorder", "retrans", "rocev2", "tap"}

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file")

// TestAPI compares the exported declarations of the stable packages with the golden file.
func TestAPI(t *testing.T) {
	var b strings.Builder
	for _, p := range stable {
		b.WriteString("package " + p + "\n\n" + declarations(t, p) + "\n")
	}
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	missing, added := diff(string(want), b.String()), diff(b.String(), string(want))
	if len(missing)+len(added) > 0 {
		t.Errorf("the exported API of the public packages has changed. Programs outside of this repository use it: "+
			"a declaration that is missing or differs breaks them, and one that is added must stay. "+
			"If the change is deliberate, run `go test ./internal/test/api -args -rewrite` and describe it in CHANGELOG.md.\n-%s\n+%s",
			strings.Join(missing, "\n-"), strings.Join(added, "\n+"))
	}
}

// diff returns the lines of a that b does not have.
func diff(a, b string) (lines []string) {
	has := map[string]bool{}
	for line := range strings.Lines(b) {
		has[line] = true
	}
	for line := range strings.Lines(a) {
		if !has[line] {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// TestImportable checks that every package that other modules can import is on one of the lists.
func TestImportable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		if slices.Contains(stable, p) {
			seen[p] = true
		} else if !slices.ContainsFunc(unstable, func(u string) bool { return p == u || strings.HasPrefix(p, u+"/") }) {
			t.Errorf("other modules can import %s. Programs would then depend on it, and it could not change freely: "+
				"move it below internal/, or add it to a list of this test", p)
		}
	}
	for _, p := range stable {
		if !seen[p] {
			t.Errorf("the public package %s is gone, which breaks programs that import it", p)
		}
	}
}

// TestVerbsMentionsOnlyItself checks that the API of verbs needs no other package of this module.
func TestVerbsMentionsOnlyItself(t *testing.T) {
	for line := range strings.Lines(declarations(t, "verbs")) {
		for _, p := range []string{"mono.", "qp.", "rocev2.", "bth.", "uverbs.", "rxe.", "rdmacm.", "unix."} {
			if strings.Contains(" "+strings.ReplaceAll(line, "*", " "), " "+p) {
				t.Errorf("the API of verbs mentions another package, which its users would have to import: %s", line)
			}
		}
	}
}

// packages returns the folders with packages that other modules can import.
func packages(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n != ".." && strings.HasPrefix(n, ".") || n == "internal" || n == "testdata" || n == "examples" || n == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if f.Name.Name != "main" {
			found[rel] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// declarations returns the exported declarations of a package without comments.
func declarations(t *testing.T, pkg string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, pkg)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	write := func(d ast.Node) {
		if err := format.Node(&b, fset, d); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	values := func(list []*doc.Value) {
		for _, v := range list {
			write(v.Decl)
		}
	}
	variables := func(list []*doc.Value) {
		for _, v := range list {
			for _, s := range v.Decl.Specs {
				s.(*ast.ValueSpec).Values = nil // the text of an error may improve
			}
		}
		values(list)
	}
	funcs := func(list []*doc.Func) {
		for _, f := range list {
			write(f.Decl)
		}
	}
	values(p.Consts)
	variables(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		write(typ.Decl)
		values(typ.Consts)
		variables(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return b.String()
}
