package bounded

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

// TestReadFile: a file of the limit is read, and a longer one or one without end is an error with name and limit.
func TestReadFile(t *testing.T) {
	const limit = 1 << 20
	dir := t.TempDir()
	for _, size := range []int{0, 1, limit - 1, limit, limit + 1, 3 * limit} {
		name, content := filepath.Join(dir, "file"), bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		want := ""
		if size > limit {
			want = name + ": longer than the limit of 1 MiB: name another file, or a part of it"
		}
		got, err := ReadFile(name, limit)
		if want == "" && (err != nil || !bytes.Equal(got, content)) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
	}
	if _, err := ReadFile("/dev/zero", limit); err == nil {
		t.Error("/dev/zero has an end")
	}
	if _, err := ReadFile(dir, limit); err == nil || err.Error() != "read "+dir+": is a directory" {
		t.Error(err)
	}
	if _, err := ReadFile(filepath.Join(dir, "none"), limit); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestReader: the limit counts the bytes of all reads, and errors of the source remain.
func TestReader(t *testing.T) {
	const limit = 1 << 20
	content := bytes.Repeat([]byte("abc"), limit/3)
	got, err := io.ReadAll(Reader(iotest.HalfReader(bytes.NewReader(content)), limit))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	broken := errors.New("broken")
	if _, err := io.ReadAll(Reader(iotest.ErrReader(broken), limit)); !errors.Is(err, broken) {
		t.Error(err)
	}
	r := Reader(bytes.NewReader(make([]byte, limit+2)), limit)
	if n, err := io.Copy(io.Discard, r); n != limit || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := r.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("after the limit: %d, %v", n, err)
	}
}
