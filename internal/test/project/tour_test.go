package project

import (
	"regexp"
	"strings"
	"testing"
)

var step = regexp.MustCompile("^\\| .* \\| `([\\w./-]+\\.go)` \\| (.*) \\|$")

// TestTour checks that the functions in the tour of docs/ARCHITECTURE.md are in the files that it names.
func TestTour(t *testing.T) {
	steps := 0
	for line := range strings.Lines(string(read(t, "docs/ARCHITECTURE.md"))) {
		m := step.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		steps++
		text := string(read(t, m[1]))
		for _, name := range strings.Split(m[2], ", ") {
			name = strings.Trim(name, "`")
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `\b`).MatchString(text) {
				t.Errorf("%s has no function %s", m[1], name)
			}
		}
	}
	if steps < 15 {
		t.Errorf("found only %d steps", steps)
	}
}
