package cli

import "testing"

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
