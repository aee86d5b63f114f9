package catalog

import (
	"strings"
	"testing"
)

// TestEntries: each plug-in has a source, and each parameter a type, a default in its range, and a unit if its name has one.
func TestEntries(t *testing.T) {
	for _, e := range Entries() {
		if e.Source == "" || e.Kind == "" || e.Name == "" {
			t.Errorf("%+v", e)
		}
		for _, p := range e.Parameters {
			if p.Type == "" || *p.Default < *p.Min || *p.Default > *p.Max || strings.HasSuffix(p.Name, "_us") != (p.Unit == "us") {
				t.Errorf("%s %s: %+v: default %v, %v to %v", e.Kind, e.Name, p, *p.Default, *p.Min, *p.Max)
			}
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		kind, name, wrong string
		n                 int
	}{
		{"congestion", "swift", "", 1},
		{"transport", "", "", 6},
		{"transprot", "", `did you mean "transport"?`, 0},
		{"tracker", "irm", `did you mean "irn"?`, 0},
	} {
		found, err := Select(Entries(), c.kind, c.name)
		if len(found) != c.n || (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s %s: %d entries, %v", c.kind, c.name, len(found), err)
		}
	}
}
