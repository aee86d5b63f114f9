package project

import (
	"io"
	"os"
	"strings"
	"testing"

	drill "roced.io/roced/drill/cli"
	"roced.io/roced/internal/ctl"
	daemon "roced.io/roced/internal/daemon/cli"
	sim "roced.io/roced/internal/sim/cli"
)

// TestFullOutput: each program fails with the reason if its output takes nothing, also a command that prints without a look at errors.
func TestFullOutput(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(args []string, out, diag io.Writer) int
		line string
	}{
		"roced":             {daemon.Main, "--help"},
		"rocectl":           {ctl.Main, "--help"},
		"rocesim":           {sim.Main, "--help"},
		"rocedrill":         {drill.Main, "--help"},
		"rocedrill analyze": {drill.Main, "analyze ../../../bth/testdata/rc_write.pcap"},
	} {
		t.Run(name, func(t *testing.T) {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			var diag strings.Builder
			if code := c.run(strings.Fields(c.line), full, &diag); code != 1 || !strings.Contains(diag.String(), "no space left") {
				t.Errorf("exit code %d: %s", code, &diag)
			}
		})
	}
}
