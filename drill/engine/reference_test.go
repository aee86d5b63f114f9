package engine

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/reference/drill-tables.md")

// TestReference checks that the page of names is that of the code.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/drill-tables.md"
	var b strings.Builder
	WriteReference(&b)
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(page) {
		t.Error("the page differs: run go test ./drill/engine -run TestReference -update")
	}
}
