package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// mutation removes a mechanism.
type mutation struct {
	line                 int
	transport, mechanism string
	file, remove, insert string
	pkg                  string
	tests                []string
}

// row is a mechanism in a table of the document, and the tests that it names.
type row struct {
	transport, mechanism string
	tests                []string
}

// readMutations reads the list. Empty lines end an entry:
//
//	# transport: beginning of the mechanism as docs/results/mechanisms-transports.md has it
//	file.go
//	- lines to be replaced, which the file has exactly once
//	+ lines instead
//	./package Test1 Test2
//
// Lines that begin with // are remarks.
func readMutations(name string) (list []mutation, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var m mutation
	end := func() {
		if m.line > 0 {
			list = append(list, m)
		}
		m = mutation{}
	}
	for i, line := range strings.Split(string(b), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			end()
		case strings.HasPrefix(line, "//"):
		case kind == "#":
			m.line = i + 1
			m.transport, m.mechanism, _ = strings.Cut(rest, ": ")
		case kind == "-":
			m.remove += rest + "\n"
		case kind == "+":
			m.insert += rest + "\n"
		case strings.HasPrefix(line, "./"):
			m.pkg, m.tests = kind, strings.Fields(rest)
		default:
			m.file = line
		}
	}
	end()
	for _, m := range list {
		if m.mechanism == "" || m.file == "" || m.remove == "" || m.pkg == "" || len(m.tests) == 0 {
			return nil, fmt.Errorf("%s:%d: an entry without mechanism, file, lines to replace, package or tests", name, m.line)
		}
	}
	return list, nil
}

var testName = regexp.MustCompile("Test[A-Za-z0-9_/,.-]+")

// readRows reads the tables of mechanisms. Their last column names tests.
func readRows(name string) (rows []row, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	transport, table := "", false
	for _, line := range strings.Split(string(b), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case strings.HasPrefix(line, "## "):
			transport = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(line, "| mechanism |"):
			table = true
		case !strings.HasPrefix(line, "|"):
			table = false
		case table && len(cells) >= 2 && !strings.HasPrefix(line, "|--"):
			rows = append(rows, row{transport, cells[0], testName.FindAllString(cells[len(cells)-1], -1)})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no table of mechanisms", name)
	}
	return rows, nil
}

// match checks that each mutation belongs to a row and uses only tests of that row, and that each row has a mutation.
func match(list []mutation, rows []row) error {
	var faults []error
	has := make([]bool, len(rows))
	for i := range list {
		m := &list[i]
		at := slices.IndexFunc(rows, func(r row) bool {
			return r.transport == m.transport && strings.HasPrefix(r.mechanism, m.mechanism)
		})
		if at < 0 {
			faults = append(faults, fmt.Errorf("line %d: the document has no mechanism %q of %s", m.line, m.mechanism, m.transport))
			continue
		}
		has[at] = true
		for _, name := range m.tests {
			if !slices.Contains(rows[at].tests, name) {
				faults = append(faults, fmt.Errorf("line %d: the document does not name %s for %q", m.line, name, m.mechanism))
			}
		}
	}
	for i, r := range rows {
		if !has[i] {
			faults = append(faults, fmt.Errorf("no mutation of %s: %s", r.transport, r.mechanism))
		}
	}
	return errors.Join(faults...)
}
