package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

// hostile starts an agent with one slot, whose daemon copies its configuration to a file and ends.
func hostile(t *testing.T) (socket, config string) {
	t.Helper()
	dir := t.TempDir()
	config = filepath.Join(dir, "config")
	daemon := filepath.Join(dir, "roced")
	must(t, os.WriteFile(daemon, []byte("#!/bin/sh\ncat > "+config+"\necho refused >&2\nexit 1\n"), 0o755))
	a := &Agent{o: Options{Socket: filepath.Join(dir, "agent.sock"), Roced: daemon}, log: slog.New(slog.DiscardHandler), changed: make(chan struct{})}
	a.slots = []*slot{{id: "nic0", dir: filepath.Join(dir, "nic0"), agent: a}}
	l, err := a.listenCNI()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.serveCNI(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a.o.Socket, config
}

// TestHostileCalls: names in a call reach the daemon's configuration as text only, and unknown commands and slots are refused.
func TestHostileCalls(t *testing.T) {
	socket, config := hostile(t)
	for _, text := range []string{"a\"}}\nnics: []\nrun_dir: /tmp\n#", "../../etc", "\x00", "\xff\u2028", "/etc/passwd", "{{", "*x", strings.Repeat("x", 4096)} {
		_ = os.Remove(config)
		err := ask(socket, &call{Command: "ADD", Container: text, Netns: text, Interface: text, Devices: []string{"nic0"}})
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%q: %v", text, err)
		}
		got, err := os.ReadFile(config)
		must(t, err)
		if n := strings.Count(string(got), "\n"); n != 3 {
			t.Errorf("%q makes %d lines:\n%s", text, n, got)
		}
	}
	for _, c := range []call{{Command: "ADD", Devices: []string{"../nic0"}}, {Command: "ADD", Devices: []string{"nic0", "nic0"}}, {Command: "EXEC"}, {}} {
		if err := ask(socket, &c); err == nil {
			t.Errorf("%+v succeeds", c)
		}
	}
}

// TestEndlessCall: a call that is too long, or that never ends, is refused.
func TestEndlessCall(t *testing.T) {
	socket, _ := hostile(t)
	for _, text := range []string{`{"pod": "` + strings.Repeat("x", 2*maxCall), `{"pod": "`, strings.Repeat("[", maxCall/2)} {
		conn, err := net.Dial("unix", socket)
		must(t, err)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(3 * callTime))
		_, _ = conn.Write([]byte(text)) // an error means that the agent has closed the connection
		var out answer
		if err := json.NewDecoder(conn).Decode(&out); errors.Is(err, os.ErrDeadlineExceeded) || err == nil && out.Error == "" {
			t.Errorf("%.20q: %+v, %v", text, out, err)
		}
	}
}
