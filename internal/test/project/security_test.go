package project

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	quoted = regexp.MustCompile("(siege )?`([^`]+)`")
	attack = regexp.MustCompile(`"([a-z]+)":\s+[a-z]+,`)
)

// TestSecurityRows checks that each row of the page about security names an attacker, an attempt, a limit, and tests
// that exist: functions (see TestTestsExist), files, or attacks of the siege.
func TestSecurityRows(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/design/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, "internal/lab/siege/attacks_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	attacks := map[string]bool{}
	for _, m := range attack.FindAllStringSubmatch(string(source), -1) {
		attacks[m[1]] = true
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| attacker ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			t.Errorf("%d cells: %s", len(cells), line)
			continue
		}
		tests := quoted.FindAllStringSubmatch(cells[3], -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range tests {
			switch _, err := os.Stat(filepath.Join(root, m[2])); {
			case m[1] != "" && !attacks[m[2]]:
				t.Errorf("the siege has no attack %q", m[2])
			case m[1] == "" && !strings.HasPrefix(m[2], "Test") && err != nil:
				t.Errorf("no such file: %s", m[2])
			}
		}
	}
	if rows < 40 || len(attacks) < 10 {
		t.Errorf("%d rows, %d attacks", rows, len(attacks))
	}
}
