package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// row is a mechanism in a table of a document, and the tests that it names.
type row struct {
	doc, mechanism string // the mechanism begins with its section, as in "MELO: swapping"
	tests          []string
}

var testName = regexp.MustCompile("Test[A-Za-z0-9_/,.-]+")

// readDocuments reads the tables of docs/results/mechanisms-*.md.
func readDocuments(root string) (rows []row, err error) {
	names, err := filepath.Glob(filepath.Join(root, "docs/results/mechanisms-*.md"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		doc := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "mechanisms-"), ".md")
		part, err := parseRows(doc, string(b))
		if err != nil {
			return nil, err
		}
		rows = append(rows, part...)
	}
	return rows, nil
}

// parseRows parses the tables of mechanisms. Their last column names tests.
func parseRows(doc, text string) (rows []row, err error) {
	section, table := "", false
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		case strings.HasPrefix(line, "| mechanism |"):
			table = true
		case !strings.HasPrefix(line, "|"):
			table = false
		case table && len(cells) >= 2 && !strings.HasPrefix(line, "|--"):
			rows = append(rows, row{doc, section + ": " + cells[0], testName.FindAllString(cells[len(cells)-1], -1)})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("mechanisms-%s.md has no table of mechanisms", doc)
	}
	return rows, nil
}

// rowOf returns the index of the first row of m, or len(rows).
func rowOf(rows []row, m *mutation) int {
	for i := range rows {
		if rows[i].has(m) {
			return i
		}
	}
	return len(rows)
}

func (r *row) has(m *mutation) bool { return strings.HasPrefix(r.mechanism, m.row) }

// matchRows checks that each mutation has one row and uses only tests of that row, and that each row has a mutation.
func matchRows(list []mutation, rows []row) error {
	var faults []error
	has := make([]bool, len(rows))
	for i := range list {
		m := &list[i]
		at := rowOf(rows, m)
		if at == len(rows) {
			faults = append(faults, fmt.Errorf("%v: no document has this mechanism", m))
			continue
		}
		if rest := rows[at+1:]; rowOf(rest, m) < len(rest) {
			faults = append(faults, fmt.Errorf("%v: the documents have several mechanisms that begin so", m))
		}
		has[at] = true
		for _, name := range m.tests {
			if _, test := splitTest(name); !slices.Contains(rows[at].tests, test) {
				faults = append(faults, fmt.Errorf("%v: mechanisms-%s.md does not name %s", m, rows[at].doc, test))
			}
		}
	}
	for i, r := range rows {
		if !has[i] {
			faults = append(faults, fmt.Errorf("no mutation of %s (mechanisms-%s.md)", r.mechanism, r.doc))
		}
	}
	return errors.Join(faults...)
}
