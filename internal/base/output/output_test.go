package output

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOutput: Create and Folders make the missing folders of a path. A file in the place of a folder is an error.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "a", "b", "file")
	f, err := Create(in)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := Folders("", filepath.Join(dir, "c", "d")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "c", "d")); err != nil {
		t.Error(err)
	}
	if Folders(in) == nil {
		t.Error("a file is a folder")
	}
	if err := Write(filepath.Join(dir, "e", "file"), []byte("text")); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "e", "file")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if f, err := Create(filepath.Join(in, "x")); err == nil {
		f.Close()
		t.Error("a file lies in a file")
	}
}
