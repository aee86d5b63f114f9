package drill

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/drill.md")

// TestReference: the tables of the reference are those of the code.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/drill.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "-update -->\n"
	at := strings.Index(string(page), mark)
	if at < 0 {
		t.Fatal("no place for the tables")
	}
	var b strings.Builder
	b.Write(page[:at+len(mark)])
	WriteReference(&b)
	if *update {
		os.WriteFile(path, []byte(b.String()), 0o644)
	} else if b.String() != string(page) {
		t.Error("the tables differ: run go test ./internal/drill -run TestReference -update")
	}
}
