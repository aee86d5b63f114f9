package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the page of the fields")

const page = "../../docs/reference/otg-model.md"

// TestPage: the page has the table of fields.
func TestPage(t *testing.T) {
	want := render()
	if *rewrite {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("%s differs from fields.txt (%v); go test ./model -args -rewrite", page, err)
	}
}

// render writes the table as a page.
func render() string {
	var b strings.Builder
	b.WriteString(`# Fields of Open Traffic Generator

For users of ` + "`roceotg`" + `: all fields of OTG's model 1.48.0 that it accepts, with the model's defaults. It refuses each other field by name.
"Mapped" fields may get another value, and "unused" ones have no effect; both are told by a warning. [The reference](otg.md) has the units.

Written by ` + "`go test ./model -args -rewrite`" + ` in the folder otg.
`)
	last := ""
	for _, f := range fields {
		message, name, _ := strings.Cut(f.name, ".")
		if message != last {
			fmt.Fprintf(&b, "\n## %s\n\n| field | default | values | |\n|---|---|---|---|\n", message)
			last = message
		}
		values := strings.Join(f.only, ", ")
		if f.low != f.high {
			values = short(f.low) + " to " + short(f.high)
		}
		kind := ""
		switch {
		case f.mapped:
			kind = "mapped: "
		case f.unused:
			kind = "unused: "
		case f.required:
			kind = "required: "
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s%s |\n", name, f.def, values, kind, f.reading)
	}
	return b.String()
}
