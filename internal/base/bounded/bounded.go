// Package bounded reads files that a user names, up to a limit. Devices and pipes may have no end.
package bounded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Limits of files in bytes.
const (
	Text = 16 << 20 // settings: configurations, scenarios, rules, scripts, certificates
	Data = 1 << 30  // data: flow lists, tables, results, captures
)

// ReadFile reads a file of at most limit bytes, a multiple of 1 MiB.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, limit)
}

// ReadAll reads the rest of a file, at most limit bytes, a multiple of 1 MiB.
func ReadAll(f *os.File, limit int64) ([]byte, error) {
	b, err := io.ReadAll(Reader(f, limit))
	if err != nil && !errors.As(err, new(*fs.PathError)) { // which has the name
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return b, err
}

// Reader returns a reader of a file that fails after limit bytes, a multiple of 1 MiB. The caller adds the file's name to the error.
func Reader(r io.Reader, limit int64) io.Reader { return &reader{from: r, limit: limit, left: limit} }

type reader struct {
	from        io.Reader
	limit, left int64
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b[:min(int64(len(b)), r.left+1)])
	if int64(n) <= r.left {
		r.left -= int64(n)
		return n, err
	}
	n, r.left = int(r.left), 0
	return n, fmt.Errorf("longer than the limit of %d MiB: name another file, or a part of it", r.limit>>20)
}
