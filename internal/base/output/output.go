// Package output opens the files that a command writes. A command opens them before its work starts, so that a wrong path
// costs no run.
package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create creates a file, or empties it, and makes its folder.
func Create(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	return os.Create(name)
}

// Write writes a whole file, and makes its folder.
func Write(name string, content []byte) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Folders makes folders and returns an error if files cannot be written into one of them. It ignores empty names.
func Folders(names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
		if err := unix.Access(name, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("cannot write into the folder %s: %w", name, err)
		}
	}
	return nil
}
