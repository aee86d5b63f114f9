package dut

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

// suite calls f in a subtest for each script of the suite. The name of a subtest is the path of its script without extension.
func suite(t *testing.T, f func(t *testing.T, s *script.Script)) {
	const root, ext = "../suite", ".drill"
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ext {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		name := strings.TrimSuffix(strings.TrimPrefix(path, root+"/"), ext)
		t.Run(name, func(t *testing.T) {
			s, err := script.Parse(path, string(text))
			if err != nil {
				t.Fatal(err)
			}
			f(t, s)
		})
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d scripts: %v", n, err)
	}
}

// TestSuite runs every script on the virtual clock, with PSNs that do not wrap and with PSNs that do.
func TestSuite(t *testing.T) {
	suite(t, func(t *testing.T, s *script.Script) {
		for seed := range uint64(4) {
			r, err := Virtual{}.Run(s, seed)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != engine.Passed {
				for _, x := range r.Log {
					t.Log(x.At, x.Dir, x.Frame, x.Text)
				}
				t.Fatalf("seed %d: %v: %s:%d: %s", seed, r.Outcome, s.Path, r.Pos.Line, r.Text)
			}
		}
	})
}

// TestDeadDevice: every script fails against a device whose agent answers, but which neither receives nor sends. A script
// that expects silence has to show that the device lives.
func TestDeadDevice(t *testing.T) {
	suite(t, func(t *testing.T, s *script.Script) {
		r, err := Virtual{dead: true}.Run(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome != engine.Failed {
			t.Errorf("%s: %v", s.Path, r.Outcome)
		}
	})
}
