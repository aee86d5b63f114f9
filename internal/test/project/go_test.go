package project

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNeedsGo: a Go that cannot fetch the one of go.mod gets one sentence.
func TestNeedsGo(t *testing.T) {
	for version, old := range map[string]bool{"1.9": true, "1.19.8": true, "1.20": true, "1.21.1": false, "1.26.2": false, "2.0": false, "": true} {
		program := filepath.Join(t.TempDir(), "go")
		if version != "" {
			script := "#!/bin/sh\necho go version go" + version + " linux/amd64\n"
			if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("../../../tools/scripts/needs-go", program).CombinedOutput()
		if (err != nil) != old || old && (strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "https://go.dev/dl/")) {
			t.Errorf("Go %s: %v, %s", version, err, out)
		}
	}
}
