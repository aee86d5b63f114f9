package dut

import (
	"os"
	"strings"
	"testing"

	"roced.io/roced/drill/script"
)

// TestSpec: scripts cite sections of drill/suite/SPEC.md only, and some script cites each.
func TestSpec(t *testing.T) {
	text, err := os.ReadFile("../suite/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	cited := map[string]bool{} // by section: whether a script cites it
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| ") {
			cited[strings.TrimPrefix(cells[0], "| ")] = false
		}
	}
	delete(cited, "section")
	must := 0
	suite(t, func(t *testing.T, s *script.Script) {
		if _, ok := cited[s.Spec]; !ok {
			t.Errorf("%s cites %s, which SPEC.md does not have", s.Path, s.Spec)
		}
		cited[s.Spec] = true
		if s.Must {
			must++
		}
	})
	for section, ok := range cited {
		if !ok {
			t.Errorf("no script cites %s", section)
		}
	}
	const enough = 400
	if must < enough {
		t.Errorf("%d scripts test demands of the specification, want %d", must, enough)
	}
}
