// Package papers runs the rows of configs/sim/papers in their fast forms.
package papers

import (
	"bytes"
	"testing"

	"roced.io/roced/internal/sim/cli"
)

// TestFast: the fast form of each row meets at least the expectations in its file; the command fails otherwise.
func TestFast(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	var out, diag bytes.Buffer
	code := cli.Main([]string{"papers", "--fast", "--quiet", "--rows", "../../../configs/sim/papers", "--out", t.TempDir(), "--json"}, &out, &diag)
	t.Logf("\n%s", out.String())
	if code != 0 {
		t.Errorf("code %d: %s", code, diag.String())
	}
}
