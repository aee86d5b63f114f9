package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// variable selects a mutation of a joint tree by its number, from 1.
const variable = "MUTANT"

// joint is a copy of the tree with all mutations of functions at once: each function calls the copy of itself that has
// the selected mutation. Thus the tests of a package are compiled once instead of once for each mutation.
type joint struct {
	dir      string
	mutated  []bool            // of each mutation: whether this tree has it
	programs map[string]string // the tests of each folder that pass without a mutation
}

// build adds list to the tree and compiles its tests. The tests must pass without a mutation; if they fail in this tree
// only, each of their mutations is tried alone.
func (j *joint) build(t *tree, list []mutation) error {
	if err := j.join(t, list); err != nil {
		return err
	}
	tests := map[string][]string{} // of each folder
	for i := range list {
		for _, name := range list[i].tests {
			dir, err := t.testDir(&list[i], name)
			if err != nil {
				return err
			}
			if _, test := splitTest(name); !slices.Contains(tests[dir], test) {
				tests[dir] = append(tests[dir], test)
			}
		}
	}
	j.programs = map[string]string{}
	var faults []error
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		program := filepath.Join(j.dir, dir, "joint.test")
		cmd := exec.Command("go", "test", "-c", "-trimpath", "-vet=off", "-o", program)
		cmd.Dir = filepath.Join(j.dir, dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			out, err = j.run(program, 0, tests[dir])
		}
		if err == nil {
			j.programs[dir] = program
			continue
		}
		fmt.Printf("%s: each mutation is tried alone: %v:\n%s", dir, err, out)
		if out, err := runTests(t.root, dir, tests[dir]...); err != nil {
			faults = append(faults, fmt.Errorf("%s fails without a mutation: %w:\n%s", dir, err, out))
		}
	}
	return errors.Join(faults...)
}

// run runs tests of a program with a mutation, or with none if number is 0.
func (j *joint) run(program string, number int, tests []string) (out []byte, err error) {
	cmd := exec.Command(program, "-test.timeout", timeout(tests), "-test.run", pattern(tests))
	cmd.Dir = filepath.Dir(program)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, number))
	return cmd.CombinedOutput()
}

// kills reports whether a test fails with m, which has index i. If not, m may still have to be tried alone.
func (j *joint) kills(t *tree, m *mutation, i int) bool {
	if !j.mutated[i] {
		return false
	}
	for _, name := range m.tests {
		dir, err := t.testDir(m, name)
		if program := j.programs[dir]; err == nil && program != "" {
			_, test := splitTest(name)
			if _, err := j.run(program, i+1, []string{test}); err != nil {
				return true
			}
		}
	}
	return false
}

// join adds the mutations of functions in Go to the tree.
func (j *joint) join(t *tree, list []mutation) error {
	j.mutated = make([]bool, len(list))
	calls := map[*decl]string{}     // of copies, in each mutated function
	copies := map[string][]string{} // of functions, for each file
	for i := range list {
		p, err := t.place(&list[i])
		if err != nil {
			return err
		}
		text := p.text()
		call, function := copyFunction(text, place{&decl{lines: p.lines}, p.at}.mutate(text, &list[i]), i+1)
		if path.Ext(p.file) != ".go" || call == "" {
			continue
		}
		j.mutated[i] = true
		calls[p.decl] += call
		copies[p.file] = append(copies[p.file], function)
	}
	for file := range copies {
		b, err := os.ReadFile(filepath.Join(j.dir, file))
		if err != nil {
			return err
		}
		text := string(b)
		for d, call := range calls {
			if d.file == file {
				at := offset(parseFunction(d.text()).Body.Lbrace) + 1
				text = strings.Replace(text, d.text(), d.text()[:at]+call+d.text()[at:], 1)
			}
		}
		text += "\n" + strings.Join(copies[file], "\n")
		if err := os.WriteFile(filepath.Join(j.dir, file), []byte(text), 0o600); err != nil {
			return err
		}
		selection := fmt.Sprintf("%s\n\nimport (\n\"os\"\n\"strconv\"\n)\n\nvar selectedMutant, _ = strconv.Atoi(os.Getenv(%q))\n", packageClause.FindString(text), variable)
		if err := os.WriteFile(filepath.Join(j.dir, path.Dir(file), "selected_mutant.go"), []byte(selection), 0o600); err != nil {
			return err
		}
	}
	return nil
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// copyFunction returns a copy of a function with another name and the mutated text, and the statement that calls it if
// the mutation is selected. It returns nothing for other declarations, and if the call would not be the same.
func copyFunction(text, mutated string, number int) (call, function string) {
	before, f := parseFunction(text), parseFunction(mutated)
	if before == nil || f == nil || f.Type.TypeParams != nil || strings.Contains(text, "recover()") {
		return "", ""
	}
	head := text[:offset(before.Body.Lbrace)]
	if !strings.HasPrefix(mutated, head) {
		return "", ""
	}
	name := fmt.Sprintf("%s_mutant%d", f.Name.Name, number)
	function = mutated[:offset(f.Name.Pos())] + name + mutated[offset(f.Name.End()):]
	args := arguments(head, before.Type.Params)
	if before.Recv != nil {
		name = "(" + arguments(head, before.Recv) + ")." + name
	}
	call = name + "(" + args + ")"
	if before.Type.Results == nil {
		call += "\nreturn"
	} else {
		call = "return " + call
	}
	return fmt.Sprintf("\nif selectedMutant == %d {\n%s\n}\n", number, call), function
}

// arguments returns the names of parameters for a call, or zero values where the function cannot use them.
func arguments(head string, list *ast.FieldList) string {
	var all []string
	for _, field := range list.List {
		names := field.Names
		if names == nil {
			names = []*ast.Ident{ast.NewIdent("_")}
		}
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, n := range names {
			switch {
			case n.Name == "_" && variadic:
			case n.Name == "_":
				all = append(all, "*new("+head[offset(field.Type.Pos()):offset(field.Type.End())]+")")
			case variadic:
				all = append(all, n.Name+"...")
			default:
				all = append(all, n.Name)
			}
		}
	}
	return strings.Join(all, ", ")
}

const clause = "package p;"

// parseFunction parses the text of a function with a body. It returns nil for other text.
func parseFunction(text string) *ast.FuncDecl {
	file, err := parser.ParseFile(token.NewFileSet(), "", clause+text, parser.SkipObjectResolution)
	if err != nil || len(file.Decls) != 1 {
		return nil
	}
	f, ok := file.Decls[0].(*ast.FuncDecl)
	if !ok || f.Body == nil {
		return nil
	}
	return f
}

// offset returns the index of a position in the text that parseFunction parsed.
func offset(pos token.Pos) int { return int(pos) - 1 - len(clause) }
