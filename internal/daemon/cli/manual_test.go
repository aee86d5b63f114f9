package cli

import (
	"flag"
	"os"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/config"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/configuration.md")

// TestReference: the page of the configuration is that of the code.
func TestReference(t *testing.T) {
	const page = "../../../docs/reference/configuration.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || string(text) != Reference() {
		t.Errorf("%s differs from the code (%v): run this test with -args -rewrite", page, err)
	}
}

// TestManual: the manual page has every key with its type, default and example, and its example is valid.
func TestManual(t *testing.T) {
	var out strings.Builder
	if code := Main([]string{"man", "roced.yaml"}, &out, os.Stderr); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	page := strings.ReplaceAll(out.String(), `\`, "")
	for _, k := range config.Keys() {
		if !strings.Contains(page, ".TP\n"+k.Name+"\n") || !strings.Contains(page, kind(k)+"; default: ") {
			t.Errorf("%s is missing", k.Name)
		}
	}
	if _, err := config.Read(strings.NewReader(example)); err != nil {
		t.Error(err)
	}
}

// TestCheck: check prints all faults of a file, with exit code 2.
func TestCheck(t *testing.T) {
	file := t.TempDir() + "/x.yaml"
	if err := os.WriteFile(file, []byte("drain: 3\nnics: [{name: a, mtu: 1, port: {type: tap}}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, diag strings.Builder
	code := Main([]string{"check", "--config", file}, &out, &diag)
	want := "roced: " + file + ":1:8: drain: \"3\" is not a duration such as 5s\n" + file + ":2:23: nics.0.mtu: 1 is not between 576 and 65521\n"
	if code != exitUsage || diag.String() != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, diag.String(), want)
	}
}
