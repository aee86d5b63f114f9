package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/shard"
)

// TestRefreshSysfs checks that the answer follows the update of the files, that each request causes one update, and
// that errors reach the program.
func TestRefreshSysfs(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, dir, 0, Config{Limits: testLimits})
	results := make(chan error, 1) // of the next call
	srv, err := New(Config{Path: filepath.Join(dir, "uverbs9"), Mode: 0o600, Shard: h.shard, Device: "a", Profiles: []string{"rc"},
		MAC: inet.MAC{2}, Limits: testLimits, Log: slog.New(slog.DiscardHandler),
		Refresh: func(context.Context) error { return <-results }})
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
	for _, c := range []struct{ result, want error }{
		{nil, nil}, {&fs.PathError{Op: "open", Path: "x", Err: unix.ENOSPC}, unix.ENOSPC}, {shard.ErrClosed, unix.EIO}, {nil, nil},
	} {
		results <- c.result
		if err := refresh(filepath.Join(dir, "uverbs9")); !errors.Is(err, c.want) || len(results) != 0 {
			t.Errorf("%v is answered with %v, want %v; %d not asked for", c.result, err, c.want, len(results))
		}
	}
	if err := refresh(h.path); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("a server without files: %v", err)
	}
}
