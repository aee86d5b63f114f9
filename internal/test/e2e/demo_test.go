package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDemo runs the demo as it runs where namespaces are not permitted.
func TestDemo(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	code, text, diag := said(t, "demo", "-link", "unix", "-bin", bin, "-out", out)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, text, diag)
	}
	for _, want := range []string{"AF_UNIX link", "state ACTIVE", "RC FETCH_ADD         ok", "Throughput:", "Latency:", "sent_pkts"} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not say %q:\n%s", want, text)
		}
	}
	for _, name := range []string{"demo.pcapng", "a.log", "b.log"} {
		if !pathExists(filepath.Join(out, name)) {
			t.Errorf("no %s", name)
		}
	}
	code, text, diag = said(t, "rocectl", "decode", filepath.Join(out, "demo.pcapng"), "--json")
	if code != 0 || text == "" {
		t.Errorf("decode: exit code %d\n%s", code, diag)
	}
	if strings.Contains(text, `"icrc":"bad"`) {
		t.Error("the capture has bad frames")
	}
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
