package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// budgets limits the lines of Go of each product, without tests, generated code, comments and blank lines. A change that
// raises a limit gives the reason in CHANGELOG.md.
var budgets = []struct {
	product string
	folders []string
	lines   int
}{
	{"core", []string{"bth", "plugin", "ccalgo", "reorder", "retrans", "path", "qp", "rocev2"}, 22619},
	{"links", []string{"port", "tap", "bpf"}, 5483},
	{"verbs", []string{"verbs"}, 3591},
	{"Flor", []string{"flor"}, 4287},
	{"rocedrill", []string{"drill"}, 12592},
	{"daemon and rocectl", []string{"cmd", "entry", "internal/daemon", "internal/ctl"}, 19919},
	{"observation", []string{"internal/observe"}, 5150},
	{"simulator", []string{"internal/sim"}, 17940},
	{"laboratory", []string{"internal/lab"}, 13437},
	{"base", []string{"internal/base"}, 6897},
	{"traffic generator", []string{"otg"}, 7223},
	{"rest", []string{"deploy", "examples", "internal/test", "preload", "tools"}, 2377},
}

// noCode matches the lines that do not count.
var noCode = regexp.MustCompile(`^\s*(//.*)?$`)

// TestBudget checks that no product grows unnoticed.
func TestBudget(t *testing.T) {
	found := make([]int, len(budgets))
	total := 0
	for _, pkg := range packages(t) {
		n := codeLines(t, pkg)
		total += n
		at := -1
		for i, b := range budgets {
			for _, f := range b.folders {
				if pkg == f || strings.HasPrefix(pkg, f+"/") {
					at = i
				}
			}
		}
		if at < 0 {
			t.Errorf("%s belongs to no product of this test; add its folder to one", pkg)
			continue
		}
		found[at] += n
	}
	for i, b := range budgets {
		t.Logf("%-20s %6d lines of at most %d", b.product, found[i], b.lines)
		if found[i] > b.lines {
			t.Errorf("%s has %d lines of Go, more than its budget of %d: remove what exists twice or is not used, or raise the budget here and "+
				"give the reason in CHANGELOG.md", b.product, found[i], b.lines)
		}
	}
	t.Logf("%-20s %6d lines", "total", total)
}

// codeLines counts the lines of a folder's Go files.
func codeLines(t *testing.T, pkg string) (n int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "_bpfe") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if !noCode.MatchString(strings.TrimSuffix(line, "\n")) {
				n++
			}
		}
	}
	return n
}
