package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/internal/base/rundir"
)

// TestForeignFolder: the folder of another user, or one that others may write to, is no lab. Its state could name any
// process, which "lab down" would end.
func TestForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	const other = 65534
	for name, c := range map[string]struct {
		uid  int
		mode os.FileMode
		want error
	}{
		"own":                 {0, 0o755, nil},
		"writable for others": {0, 0o777, rundir.ErrOthers},
		"of another user":     {other, 0o700, rundir.ErrOthers},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := []byte(`{"pid": 1}`)
			if err := errors.Join(os.WriteFile(filepath.Join(dir, stateFile), text, 0o644), os.Chmod(dir, c.mode), os.Chown(dir, c.uid, c.uid)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := read(dir); !errors.Is(err, c.want) {
				t.Errorf("read: %v", err)
			}
			f, err := claim(dir)
			if !errors.Is(err, c.want) {
				t.Errorf("claim: %v", err)
			}
			f.Close()
		})
	}
}
