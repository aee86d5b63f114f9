package dut

import (
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/internal/drill"
	"roced.io/roced/internal/drill/script"
)

// TestSuite runs every script on the virtual clock, with PSNs that do not wrap and with PSNs that do.
func TestSuite(t *testing.T) {
	paths, err := filepath.Glob("../../../drill/suite/*/*.drill")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := script.Parse(path, string(text))
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(4) {
				r, err := Virtual{}.Run(s, seed)
				if err != nil {
					t.Fatal(err)
				}
				if r.Outcome != drill.Passed {
					for _, x := range r.Log {
						t.Log(x.At, x.Dir, x.Frame, x.Text)
					}
					t.Fatalf("seed %d: %v: %s:%d: %s", seed, r.Outcome, path, r.Pos.Line, r.Text)
				}
			}
		})
	}
}
