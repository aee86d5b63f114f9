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

// module is the import path of the root.
const module = "roced.io/roced/"

// layers lists every folder of Go packages, from the top to the bottom. A package may import packages of its own
// folder and of folders below it. So a reader can learn the packages from the bottom to the top, and
// imports cannot form a circle.
var layers = []string{
	"cmd", "entry", "tools", "internal/test", "preload/test", "internal/lab/interop", "otg",
	"internal/ctl",
	"drill",
	"internal/lab",
	"entry/local",
	"internal/daemon",
	"internal/sim",
	"internal/observe",
	"flor",
	"verbs",
	"rocev2",
	"tap", "port",
	"bpf",
	"port/link",
	"qp",
	"path", "retrans", "reorder", "ccalgo",
	"internal/base",
	"bth",
	"plugin",
	"internal/base/suggest",
}

// layer returns the index in layers of the folder that holds a package, -1 if there is none.
func layer(pkg string) int {
	best, length := -1, -1
	for i, l := range layers {
		if (pkg == l || strings.HasPrefix(pkg, l+"/")) && len(l) > length {
			best, length = i, len(l)
		}
	}
	return best
}

// core lists the packages that are deterministic and do no I/O: the daemon, the simulator and the tests drive the
// same code on different clocks.
var core = []string{
	"plugin/balance", "plugin/mono", "plugin/param", "bth", "bth/fields", "bth/inet", "bth/mad", "internal/base/registry", "internal/base/suggest", "internal/base/ring", "internal/base/list", "internal/base/psnring", "internal/base/bitpool", "internal/base/sched", "internal/base/quantity",
	"internal/base/fault", "internal/base/mapped", "reorder", "retrans", "ccalgo", "path", "qp", "qp/mrc", "qp/profile", "port/link", "rocev2", "rocev2/queue", "rocev2/stack", "rocev2/memory", "rocev2/object", "internal/daemon/cm", "internal/sim/engine",
	"internal/sim/prefetch", "internal/sim/fabric", "internal/sim/nic", "internal/sim/workload", "internal/sim/flor", "flor/engine",
	"internal/observe/flow", "drill/engine", "drill/frame", "drill/script",
}

// corePermitted are the standard packages that the core may import: pure
// computation only.
var corePermitted = []string{
	"bytes", "cmp", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "iter", "maps", "math", "math/bits", "math/rand/v2",
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
	"internal/daemon":        {"internal/daemon/cli", "internal/daemon", "internal/lab", "entry/local"},
	"internal/daemon/cli":    {"cmd/roced", "entry/daemon"},
	"internal/daemon/server": {"internal/daemon", "internal/daemon/server", "internal/daemon/ucma"},
}

// fixtures are packages for tests and benchmarks, with the packages below them. No program links them.
var fixtures = []string{"internal/lab/netlab", "internal/lab/porttest", "internal/lab/bench", "internal/test", "qp/qptest", "rocev2/nictest"}

// TestNoFixtures follows the imports of the programs: they link neither fixtures nor package testing.
func TestNoFixtures(t *testing.T) {
	seen := map[string]bool{}
	var follow func(pkg string, by []string)
	follow = func(pkg string, by []string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		by = append(slices.Clone(by), pkg)
		if slices.ContainsFunc(fixtures, func(f string) bool { return pkg == f || strings.HasPrefix(pkg, f+"/") }) {
			t.Errorf("a program links a fixture: %s", strings.Join(by, " -> "))
		}
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				path := importPath(imp)
				if path == "testing" {
					t.Errorf("a program links package testing: %s", strings.Join(by, " -> "))
				}
				if own, isOurs := strings.CutPrefix(path, module); isOurs {
					follow(own, by)
				}
			}
		}
	}
	for _, pkg := range packages(t) {
		if strings.HasPrefix(pkg, "cmd/") {
			follow(pkg, nil)
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	for _, pkg := range core {
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				path := importPath(imp)
				own, isOurs := strings.CutPrefix(path, module)
				if isOurs && !slices.Contains(core, own) || !isOurs && !slices.Contains(corePermitted, path) {
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

// TestLayers checks that imports point down. Folder equals layer: a reader sees from the path of a package what it
// may depend on.
func TestLayers(t *testing.T) {
	for _, pkg := range packages(t) {
		from := layer(pkg)
		if from < 0 && !strings.HasPrefix(pkg, "examples/") && !strings.HasPrefix(pkg, "deploy/") {
			t.Errorf("%s: no layer of this test has it; add its folder where it belongs", pkg)
		}
		for _, f := range parse(t, pkg) {
			for _, imp := range f.ast.Imports {
				own, isOurs := strings.CutPrefix(importPath(imp), module)
				if !isOurs {
					continue
				}
				if to := layer(own); from >= 0 && to < from {
					t.Errorf("%s imports %s, which lies above it (layers, from the top: %v)", f.name, own, layers)
				}
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

// TestTopLevel bounds how many folders a newcomer has to look at.
func TestTopLevel(t *testing.T) {
	const most = 24
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && e.Name() != "out" {
			folders = append(folders, e.Name())
		}
	}
	if len(folders) > most {
		t.Errorf("%d folders at the top, more than %d, are too many to read as a table of contents: %v", len(folders), most, folders)
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
