package sysfs

import (
	"errors"
	"os"
	"path/filepath"
)

// files writes files by name.
func (t *Tree) files(files map[string]string) error {
	var errs []error
	for name, text := range files {
		errs = append(errs, t.write(name, text))
	}
	return errors.Join(errs...)
}

// write replaces a text file atomically if its content has changed.
func (t *Tree) write(name, text string) error { return t.put(name, text+"\n") }

// put is write with the bytes as they are.
func (t *Tree) put(name, text string) error {
	if t.text[name] == text {
		return nil
	}
	path := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(t.root, ".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	t.text[name] = text
	return nil
}

// link creates a symbolic link to another path of the tree, or to a path relative to its root. The link is relative, so it
// remains valid after a move of the tree.
func (t *Tree) link(name, to string) error {
	path := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(name), filepath.Dir(to))
	if err != nil {
		return err
	}
	target = filepath.Join(target, filepath.Base(to)) // as in Linux, it ends with the name
	t.text[name] = target
	return os.Symlink(target, path)
}
