package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSocketIsPrivate checks that only root may connect to the agent, whatever the umask is, and that a file in the
// socket's place does not prevent it.
func TestSocketIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	target, socket := filepath.Join(dir, "target"), filepath.Join(dir, "agent.sock")
	if err := os.WriteFile(target, []byte("kept"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, socket); err != nil {
		t.Fatal(err)
	}
	a := &Agent{o: Options{Socket: socket}}
	l, err := a.listenCNI()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	st, err := os.Lstat(socket)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if text, err := os.ReadFile(target); string(text) != "kept" {
		t.Errorf("the target of a link: %q, %v", text, err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
