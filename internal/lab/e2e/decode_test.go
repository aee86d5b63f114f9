package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestDecode makes rocectl read captures of Linux's rxe.
func TestDecode(t *testing.T) {
	files, err := filepath.Glob("../../../bth/testdata/*.pcap")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			out, err := exec.Command(lab.Program("rocectl"), "decode", file, "--json").Output()
			lab.Must(t, err)
			n := 0
			for line := range strings.Lines(string(out)) {
				n++
				var r map[string]any
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				for _, key := range strings.Fields("time src dst sport opcode qpn psn ackreq payload icrc") {
					if _, ok := r[key]; !ok {
						t.Fatalf("no %s in %s", key, line)
					}
				}
				if r["icrc"] != "ok" || r["error"] != nil {
					t.Fatalf("not a good frame: %s", line)
				}
			}
			if n == 0 {
				t.Error("no frames")
			}
			text, err := exec.Command(lab.Program("rocectl"), "decode", file).Output()
			lab.Must(t, err)
			if lines := strings.Count(string(text), "\n"); lines != n {
				t.Errorf("%d lines of text, %d of JSON", lines, n)
			}
		})
	}
}

// TestDecodeStandardInput reads the output of another program.
func TestDecodeStandardInput(t *testing.T) {
	c := exec.Command("sh", "-c", `cat ../../../bth/testdata/rc_read.pcap | "$0" decode - | head -1`, lab.Program("rocectl"))
	out, err := c.CombinedOutput()
	lab.Must(t, err)
	if strings.Count(string(out), "\n") < 1 || !strings.Contains(string(out), "RC_") {
		t.Errorf("says %q", out)
	}
}
