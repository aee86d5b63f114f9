// Package test tests the program rocedrill on a daemon. It has tests only.
package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestRoced runs the whole suite on a daemon, which rocedrill starts without privilege. Each script passes or does not apply.
func TestRoced(t *testing.T) {
	lab.Long(t)
	if _, err := os.Stat(lab.Program("rocedrill-agent")); err != nil {
		t.Skip("needs libibverbs-dev, without which there is no agent")
	}
	out, err := exec.CommandContext(t.Context(), lab.Program("rocedrill"), "run", "../suite", "--dut", "roced", "--log", "--slack", "3s").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var passed, failed, without int
	const enough = 250
	if _, err := fmt.Sscanf(lines[len(lines)-1], "%d passed, %d failed, %d not applicable", &passed, &failed, &without); err != nil || passed < enough || failed > 0 {
		t.Errorf("%s, want at least %d passed", lines[len(lines)-1], enough)
	}
	if _, err := os.Stat(lab.Program("rocedrill-agent-cm")); err != nil {
		return // needs librdmacm-dev
	}
	const manager = 16 // scripts of the connection manager that need no virtual clock
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "passed") && strings.Contains(l, "suite/cm/") {
			n++
		}
	}
	if n < manager {
		t.Errorf("%d scripts of the connection manager passed, want %d", n, manager)
	}
}
