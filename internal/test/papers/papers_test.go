// Package papers runs the rows of configs/sim/papers in their fast forms.
package papers

import (
	"bytes"
	"testing"

	"roced.io/roced/internal/cli/sim"
)

// TestFast: each row shows in its fast form at least what its file expects; the command fails if not.
func TestFast(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	var out, diag bytes.Buffer
	code := sim.Main([]string{"papers", "--fast", "--quiet", "--rows", "../../../configs/sim/papers", "--out", t.TempDir(), "--docs", ""}, &out, &diag)
	t.Logf("\n%s", out.String())
	if code != 0 {
		t.Errorf("code %d: %s", code, diag.String())
	}
}
