package cli

import (
	"bytes"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/papers"
)

// TestFastHasNoVerdict: the values of fast forms are printed without a verdict.
func TestFastHasNoVerdict(t *testing.T) {
	for form, want := range map[string]string{"fast": "fast form, no verdict", "full": "reproduced"} {
		var out bytes.Buffer
		a := &app{out: &out}
		err := a.showPapers([]papers.Summary{{ID: "x", Form: form, Claims: []papers.Claim{{Says: "s", Verdict: papers.Reproduced}}}})
		if err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "reproduced") != (form == "full") {
			t.Errorf("%s: %q, %v", form, out.String(), err)
		}
	}
}

// TestFast: the fast form of each row meets at least the expectations in its file; the command fails otherwise.
func TestFast(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	code, out, diag := rocesim("papers", "--fast", "--quiet", "--rows", scenarios+"papers", "--out", t.TempDir(), "--json")
	t.Logf("\n%s", out)
	if code != 0 {
		t.Errorf("code %d: %s", code, diag)
	}
}
