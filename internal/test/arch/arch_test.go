// Package arch enforces the architecture: which package may import what, and
// what the deterministic core may not do. docs/ARCHITECTURE.md says why.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// core maps each core package to the packages of ours that it may import.
var core = map[string][]string{
	"mono":    {},
	"bth":     {},
	"bth/mad": {},
	"param":   {},
	"ring":    {},
	"bitpool": {"bth"},
	"reorder": {"bitpool", "bth", "mono", "param"},
	"retrans": {"bitpool", "bth", "mono", "param"},
	"ccalgo":  {"bth", "mono", "param"},
	"path":    {"bth", "mono", "param", "ring"},
	"sched":   {"mono"},
	"qp":      {"bth", "mono", "reorder", "retrans", "ccalgo", "path", "ring", "sched"},
	"profile": {"bitpool", "bth", "param", "reorder", "retrans", "ccalgo", "path", "qp"},
	"rocev2":  {"bth", "bth/mad", "mono", "qp", "profile", "sched"},
	"cm":      {"bth", "bth/mad", "mono", "qp", "rocev2"},

	"sim/engine":   {"mono"},
	"sim/prefetch": {},
	"sim/fabric":   {"sim/engine", "sim/prefetch"},
	"sim/nic":      {"bth", "mono", "qp", "ring", "sched", "sim/engine", "sim/fabric", "sim/prefetch"},
	"sim/workload": {"qp", "sim/engine", "sim/fabric", "sim/nic"},

	"flor/engine": {"ccalgo", "mono", "param", "ring", "sched"},
	"sim/flor":    {"flor/engine", "mono", "qp", "ring", "sim/engine", "sim/nic", "sim/workload"},

	"internal/fault":        {"bth", "mono"},
	"internal/observe/flow": {"bth", "bth/mad", "mono"},
}

// corePermitted are the standard packages that the core may import: pure
// computation only.
var corePermitted = []string{
	"cmp", "encoding/binary", "errors", "fmt", "hash/crc32", "iter", "maps", "math", "math/bits", "math/rand/v2",
	"net/netip", "slices", "sort", "strconv", "strings", "sync/atomic", "time", "unsafe", "container/heap",
}

// coreForbidden are selectors that would read a clock, use global randomness or
// start something.
var coreForbidden = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer",
	"time.NewTicker", "time.Tick", "rand.Int", "rand.IntN", "rand.Uint32", "rand.Uint64", "rand.Float64",
	"rand.N", "rand.Perm", "rand.Shuffle",
}

// onlyFor maps packages to the only ones that may import them.
var onlyFor = map[string][]string{
	"internal/daemon":        {"internal/cli/roced", "internal/daemon", "internal/test/lab"},
	"internal/cli/roced":     {"cmd/roced", "entry/daemon"},
	"internal/daemon/server": {"internal/daemon", "internal/daemon/server", "internal/daemon/ucma"},
}

// library maps packages for programs of others, outside of the core, to the packages of ours that they may import.
var library = map[string][]string{
	"flor": {"flor/engine", "mono", "qp", "verbs"},
}

func TestLibraries(t *testing.T) {
	for pkg, ours := range library {
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				if own, isOurs := strings.CutPrefix(importPath(imp), "roced/"); isOurs && !slices.Contains(ours, own) {
					t.Errorf("%s imports %s", f.name, own)
				}
			}
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	for pkg, ours := range core {
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				path := importPath(imp)
				own, isOurs := strings.CutPrefix(path, "roced/")
				if isOurs && !slices.Contains(ours, own) || !isOurs && !slices.Contains(corePermitted, path) {
					t.Errorf("%s imports %s, which the core must not", f.name, path)
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s:%d starts a goroutine in the core", f.name, f.fset.Position(n.Pos()).Line)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && slices.Contains(coreForbidden, x.Name+"."+n.Sel.Name) {
						t.Errorf("%s:%d uses %s.%s in the core", f.name, f.fset.Position(n.Pos()).Line, x.Name, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

func TestLayers(t *testing.T) {
	for _, pkg := range packages(t) {
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				own := strings.TrimPrefix(importPath(imp), "roced/")
				if allowed, ok := onlyFor[own]; ok && !slices.Contains(allowed, pkg) {
					t.Errorf("%s imports %s, which only %v may", f.name, own, allowed)
				}
				if strings.HasPrefix(own, "cmd/") {
					t.Errorf("%s imports a command", f.name)
				}
			}
		}
	}
}

// TestFilesAreReadable bounds the length of files and functions.
func TestFilesAreReadable(t *testing.T) {
	const maxFile, maxFunc = 500, 60
	for _, pkg := range packages(t) {
		for _, f := range parse(t, pkg) {
			if n := f.fset.Position(f.ast.End()).Line; n > maxFile {
				t.Errorf("%s has %d lines, more than %d", f.name, n, maxFile)
			}
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line; n > maxFunc {
					t.Errorf("%s: %s has %d lines, more than %d", f.name, fn.Name.Name, n, maxFunc)
				}
			}
		}
	}
}

type file struct {
	name string
	fset *token.FileSet
	ast  *ast.File
}

const root = "../../.."

// parse reads the non-test files of a package.
func parse(t *testing.T, pkg string) []file {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go files in %s (%v)", pkg, err)
	}
	var out []file
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, file{name, fset, f})
	}
	return out
}

// packages lists the folders with Go files, relative to the root.
func packages(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := d.Name(); base != ".." && strings.HasPrefix(base, ".") || base == "testdata" {
			return filepath.SkipDir
		}
		if names, _ := filepath.Glob(filepath.Join(path, "*.go")); len(names) > 0 {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			out = append(out, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func importPath(i *ast.ImportSpec) string {
	p, err := strconv.Unquote(i.Path.Value)
	if err != nil {
		return i.Path.Value
	}
	return p
}
