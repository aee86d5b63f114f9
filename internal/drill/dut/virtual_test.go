package dut

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/internal/drill"
	"roced.io/roced/internal/drill/script"
)

// TestSuite runs every script on the virtual clock, with PSNs that do not wrap and with PSNs that do.
func TestSuite(t *testing.T) {
	suite := os.DirFS("../../../drill/suite")
	var paths []string
	err := fs.WalkDir(suite, ".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".drill" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			text, err := fs.ReadFile(suite, path)
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
