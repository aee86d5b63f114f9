package dut

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAbandoned: a link replaces the socket that an abrupt end left, but neither one that a process has nor another file.
func TestAbandoned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := openSocket(path, "far")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openSocket(path, "far"); err == nil || !strings.Contains(err.Error(), "link "+path+": another process has this socket; end the one that") {
		t.Errorf("in use: %v", err)
	}
	l.path = "" // close leaves the file
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if l, err = openSocket(path, "far"); err != nil {
		t.Fatalf("abandoned: %v", err)
	}
	if err := errors.Join(l.close(), os.WriteFile(path, []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := openSocket(path, "far"); err == nil || !strings.Contains(err.Error(), "the file is not a socket; remove it, or use another path") {
		t.Errorf("a file: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestFull: a sender waits for a link that is full, at most for the limit.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	far, near := filepath.Join(dir, "far"), filepath.Join(dir, "near")
	var ends [2]*wire
	for i, paths := range [][2]string{{near, far}, {far, near}} {
		var err error
		if ends[i], err = openSocket(paths[0], paths[1]); err != nil {
			t.Fatal(err)
		}
		defer ends[i].close()
	}
	frame := make([]byte, 60)
	queued := 0
	for unix.Sendto(ends[0].fd, frame, 0, ends[0].to) == nil {
		queued++
	}
	sent := make(chan error)
	go func() { sent <- ends[0].send(frame) }()
	for received := 0; received <= queued; received++ {
		if ready, err := ends[1].wait(10 * time.Second); !ready || err != nil {
			t.Fatalf("frame %d of %d does not arrive: %v", received, queued, err)
		}
		if _, err := ends[1].recv(frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}

	defer func(d time.Duration) { sendLimit = d }(sendLimit)
	sendLimit = time.Millisecond
	for _, full := range []error{unix.EAGAIN, unix.ENOBUFS} {
		n := 0
		err := untilRoom(func() error { n++; return full })
		if !errors.Is(err, full) || n < 2 {
			t.Errorf("%v after %d sends", err, n)
		}
	}
}
