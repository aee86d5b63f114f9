package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEscapes: text of a file cannot control the terminal.
func TestEscapes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("\"un\\e]0;known\\a\": 1\nlog: {level: \"\\e[31m\\u009b\"}\nnics: [{name: \"a\\e[2J\", port: {type: tap}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, diag strings.Builder
	if code := Main([]string{"check", "--config", file}, &out, &diag); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	text := out.String() + diag.String()
	if strings.ContainsAny(text, "\x1b\a\u009b") || !strings.Contains(text, `un\u001b]0;known\u0007`) {
		t.Errorf("%q", text)
	}
}
