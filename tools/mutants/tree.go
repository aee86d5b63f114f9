package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tree is the source code that lists mutate.
type tree struct {
	root  string
	decls []decl
	tests map[string][]string // the folders of each function Test...
}

// decl is a declaration at the top level of a file.
type decl struct {
	file, name string
	first      int      // line, from 0
	lines      []string // whole lines
}

func (d *decl) text() string { return strings.Join(d.lines, "\n") }

// place is a sequence of lines of a declaration.
type place struct {
	*decl
	at int // index of the first line in decl.lines
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// readTree reads the given files in Go and C below root.
func readTree(root string, files []string) (*tree, error) {
	t := &tree{root: root, tests: map[string][]string{}}
	for _, name := range files {
		ext := path.Ext(name)
		if ext != ".go" && ext != ".c" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		switch {
		case strings.HasSuffix(name, "_test.go"):
			for _, f := range testFunc.FindAllSubmatch(b, -1) {
				t.addTest(string(f[1]), path.Dir(name))
			}
		case ext == ".go":
			decls, err := goDecls(name, string(b))
			if err != nil {
				return nil, err
			}
			t.decls = append(t.decls, decls...)
		default:
			t.decls = append(t.decls, cDecls(name, string(b))...)
		}
	}
	return t, nil
}

func (t *tree) addTest(name, dir string) {
	if !slices.Contains(t.tests[name], dir) {
		t.tests[name] = append(t.tests[name], dir)
	}
}

// goDecls returns the declarations of a file. One of several in parentheses has only its own lines.
func goDecls(name, text string) (decls []decl, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(text, "\n")
	add := func(what string, n ast.Node) {
		first, last := set.Position(n.Pos()).Line-1, set.Position(n.End()).Line
		decls = append(decls, decl{name, what, first, lines[first:last]})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add("func "+receiver(d)+d.Name.Name, d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					add(d.Tok.String()+" "+s.Names[0].Name, s)
				case *ast.TypeSpec:
					add("type "+s.Name.Name, s)
				}
			}
		}
	}
	return decls, nil
}

// receiver returns the type of a method and a point, without pointer and type parameters.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

var cFunc = regexp.MustCompile(`^[A-Za-z_][^;{]*?\b(\w+)\(`)

// cDecls returns the functions of a file. They begin and end at the left margin.
func cDecls(name, text string) (decls []decl) {
	lines := strings.Split(text, "\n")
	what, first, body := "", 0, false
	for i, line := range lines {
		if head := cFunc.FindStringSubmatch(line); head != nil && what == "" {
			what, first, body = "func "+head[1], i, false
		}
		body = body || strings.Contains(line, "{")
		switch {
		case what == "":
		case body && strings.HasSuffix(line, "}") && indentation(line) == "":
			decls = append(decls, decl{name, what, first, lines[first : i+1]})
			what = ""
		case !body && strings.HasSuffix(line, ";"):
			what = "" // a prototype or a variable
		}
	}
	return decls
}

// find returns the places of lines in the declarations that accept returns true for. It compares lines without
// indentation, by equal.
func (t *tree) find(lines []string, equal func(a, b string) bool, accept func(*decl) bool) (places []place) {
	same := func(a, b string) bool { return equal(strings.TrimLeft(a, " \t"), strings.TrimLeft(b, " \t")) }
	for i := range t.decls {
		d := &t.decls[i]
		if !accept(d) {
			continue
		}
		for at := 0; at+len(lines) <= len(d.lines); at++ {
			if slices.EqualFunc(d.lines[at:at+len(lines)], lines, same) {
				places = append(places, place{d, at})
			}
		}
	}
	return places
}

func identical(a, b string) bool { return a == b }

// place returns the place that m replaces.
func (t *tree) place(m *mutation) (place, error) {
	mine := func(d *decl) bool { return d.name == m.decl && path.Dir(d.file) == m.dir() }
	if !slices.ContainsFunc(t.decls, func(d decl) bool { return mine(&d) }) {
		return place{}, fmt.Errorf("%s has no %s", m.dir(), m.decl)
	}
	places := t.find(m.remove, identical, mine)
	if len(places) != 1 {
		return place{}, fmt.Errorf("%s has the replaced lines %d times, want once", m.decl, len(places))
	}
	return places[0], nil
}

// mutate returns text, the content of the file of p, with the mutation m, whose indentation it adapts.
func (p place) mutate(text string, m *mutation) string {
	lines := strings.Split(text, "\n")
	at := p.first + p.at
	indent := strings.TrimSuffix(indentation(lines[at]), indentation(m.remove[0]))
	var insert []string
	for _, line := range m.insert {
		if line != "" {
			line = indent + line
		}
		insert = append(insert, line)
	}
	return strings.Join(slices.Replace(lines, at, at+len(m.remove), insert...), "\n")
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// splitTest separates the package from the name of a test.
func splitTest(name string) (pkg, test string) {
	if strings.HasPrefix(name, "Test") {
		return "", name
	}
	pkg, test, _ = strings.Cut(name, ".")
	return pkg, test
}

// testDir returns the folder of a test that m names: its own one, unless the name begins with a package.
func (t *tree) testDir(m *mutation, name string) (string, error) {
	pkg, test := splitTest(name)
	function, _, _ := strings.Cut(test, "/")
	var dirs []string
	for _, dir := range t.tests[function] {
		if pkg == "" && dir == m.dir() || pkg != "" && path.Base(dir) == pkg {
			dirs = append(dirs, dir)
		}
	}
	switch {
	case len(dirs) > 1:
		return "", fmt.Errorf("%s is ambiguous: %s have it", name, strings.Join(dirs, " and "))
	case len(dirs) == 1:
		return dirs[0], nil
	case pkg == "":
		pkg = m.dir()
	}
	return "", fmt.Errorf("%s has no %s", pkg, function)
}

// check reports the mutations that do not apply, and the tests that do not exist.
func (t *tree) check(m *mutation) error {
	if _, err := t.place(m); err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	for _, name := range m.tests {
		if _, err := t.testDir(m, name); err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
	}
	return nil
}
