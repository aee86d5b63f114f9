package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"roced/internal/uverbs"
	"roced/rocev2"
)

// TestRefreshSysfs checks that a program is answered after the files have been
// brought up to date, once for each request, and hears if that fails.
func TestRefreshSysfs(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, dir, 0, testLimits)
	calls := 0
	var fails error
	srv, err := New(Config{Path: filepath.Join(dir, "uverbs9"), Mode: 0o600, Shard: h.shard, Device: "a", Profiles: []string{"rc"},
		MAC: rocev2.MAC{2}, Limits: testLimits, Log: slog.New(slog.DiscardHandler),
		Refresh: func(context.Context) error { calls++; return fails }})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	refresh := func(path string) error {
		conn, err := uverbs.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() // the library refreshes without a context
		_, _, err = conn.Call(uverbs.Command(uverbs.ExtRefreshSysfs, 0, struct{}{}), nil)
		return err
	}
	for n := 1; n <= 3; n++ {
		if err := refresh(filepath.Join(dir, "uverbs9")); err != nil || calls != n {
			t.Errorf("%d calls after %d requests, %v", calls, n, err)
		}
	}
	fails = &fs.PathError{Op: "open", Path: "x", Err: unix.ENOSPC}
	if err := refresh(filepath.Join(dir, "uverbs9")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a full file system: %v", err)
	}
	fails = errors.New("something else")
	if err := refresh(filepath.Join(dir, "uverbs9")); !errors.Is(err, unix.EIO) {
		t.Errorf("another error: %v", err)
	}
	if err := refresh(h.path); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a server without files: %v", err)
	}
}
