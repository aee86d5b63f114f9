package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// listName is the name of a list, in the folder of the package that it mutates.
const listName = "mutants.txt"

// head begins each list.
const head = "// Run by make mutants. CONTRIBUTING.md describes the form, and go run ./tools/mutants -rebase updates it after code has moved.\n"

// mutation removes a mechanism.
type mutation struct {
	list           string
	line           int
	row            string // section and beginning of the mechanism, as in "MELO: swapping"
	decl           string // as in "func sender.pto"
	remove, insert []string
	tests          []string
}

// dir is the folder of the mutated package.
func (m *mutation) dir() string { return path.Dir(m.list) }

func (m *mutation) String() string { return fmt.Sprintf("%s:%d: %s", m.list, m.line, m.row) }

// readLists reads the lists among the files of a tree.
func readLists(root string, files []string) (list []mutation, err error) {
	for _, name := range files {
		if path.Base(name) != listName {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		part, err := parseList(name, string(b))
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return list, nil
}

// parseList parses a list. Mutations of one mechanism share its heading:
//
//	# section: beginning of the mechanism as a document has it
//	func type.method: Test1 package.Test2/script
//	- lines to be replaced, which the declaration has exactly once
//	+ lines instead, if any
//
// The indentation of lines counts only from one to the next. Lines that begin with // are remarks.
func parseList(name, text string) (list []mutation, err error) {
	row := ""
	for i, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		m := &mutation{}
		if len(list) > 0 {
			m = &list[len(list)-1]
		}
		switch kind {
		case "", "//":
		case "#":
			row = rest
		case "-":
			m.remove = append(m.remove, rest)
		case "+":
			m.insert = append(m.insert, rest)
		case "func", "var", "const", "type":
			decl, tests, _ := strings.Cut(line, ": ")
			list = append(list, mutation{list: name, line: i + 1, row: row, decl: decl, tests: strings.Fields(tests)})
		default:
			return nil, fmt.Errorf("%s:%d: %q begins neither a mechanism (#), a declaration, a replaced line (-), nor its replacement (+)", name, i+1, kind)
		}
	}
	for _, m := range list {
		if m.row == "" || len(m.remove) == 0 || len(m.tests) == 0 {
			return nil, fmt.Errorf("%s:%d: a mutation without mechanism, tests or lines to replace", name, m.line)
		}
	}
	return list, nil
}

// formatList is the inverse of parseList.
func formatList(list []mutation) string {
	var b strings.Builder
	b.WriteString(head)
	row := ""
	for _, m := range list {
		if m.row != row {
			fmt.Fprintf(&b, "\n# %s\n", m.row)
			row = m.row
		}
		fmt.Fprintf(&b, "%s: %s\n", m.decl, strings.Join(m.tests, " "))
		for _, line := range m.remove {
			b.WriteString(strings.TrimRight("- "+line, " ") + "\n")
		}
		for _, line := range m.insert {
			b.WriteString(strings.TrimRight("+ "+line, " ") + "\n")
		}
	}
	return b.String()
}

// writeLists writes the lists of all mutations in the order of rows, and removes the lists among files that are empty now.
func writeLists(root string, files []string, list []mutation, rows []row) error {
	lists := map[string][]mutation{}
	for _, name := range files {
		if path.Base(name) == listName {
			lists[name] = nil
		}
	}
	for _, m := range list {
		lists[m.list] = append(lists[m.list], m)
	}
	for name, list := range lists {
		file := filepath.Join(root, name)
		if len(list) == 0 {
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		slices.SortStableFunc(list, func(a, b mutation) int { return rowOf(rows, &a) - rowOf(rows, &b) })
		if err := os.WriteFile(file, []byte(formatList(list)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
