package vm

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
)

// archive writes an initial RAM file system: a cpio archive of format "newc" (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst). It keeps the first error.
type archive struct {
	w     *bufio.Writer
	known map[string]bool
	inode int
	err   error
}

// File types in modes (inode(7)).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), known: map[string]bool{".": true, "/": true}}
}

// entry adds a file of any type, and the missing folders above it. It skips existing names.
func (a *archive) entry(name string, mode int, content []byte) {
	if a.known[name] {
		return
	}
	a.known[name] = true
	a.dir(path.Dir(name))
	a.write(name, mode, content)
}

func (a *archive) write(name string, mode int, content []byte) {
	if a.err != nil {
		return
	}
	a.inode++
	links, uid, gid, mtime, major, minor := 1, 0, 0, 0, 0, 0
	head := "070701"
	for _, n := range []int{a.inode, mode, uid, gid, links, mtime, len(content), major, minor, major, minor, len(name) + 1, 0} {
		head += fmt.Sprintf("%08X", n)
	}
	a.padded([]byte(head + name + "\x00"))
	a.padded(content)
}

// padded writes b and zeros up to a multiple of four.
func (a *archive) padded(b []byte) {
	_, a.err = a.w.Write(b)
	if pad := -len(b) & 3; pad > 0 && a.err == nil {
		_, a.err = a.w.Write(make([]byte, pad))
	}
}

func (a *archive) dir(name string)                         { a.entry(name, modeDir|0o755, nil) }
func (a *archive) file(name string, mode int, text []byte) { a.entry(name, modeFile|mode, text) }
func (a *archive) link(name, target string)                { a.entry(name, modeLink|0o777, []byte(target)) }

// copy adds a file of this machine as an executable.
func (a *archive) copy(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.file(to, 0o755, content)
	return nil
}

// Close writes the trailer of the archive.
func (a *archive) Close() error {
	a.write("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	return a.w.Flush()
}
