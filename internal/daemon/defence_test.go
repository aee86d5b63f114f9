package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/daemon/quota"
)

// TestRunDir refuses run directories in which other users could replace the sockets.
func TestRunDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	f, err := lockRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, mode := range []os.FileMode{0o777, 0o775, 0o702} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := lockRunDir(dir); !errors.Is(err, rundir.ErrOthers) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Symlink(dir, dir+"-link")); err != nil {
		t.Fatal(err)
	}
	if _, err := lockRunDir(dir + "-link"); !errors.Is(err, rundir.ErrOthers) {
		t.Errorf("symbolic link: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to somebody else")
	}
	if err := os.Chown(dir, 4242, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := lockRunDir(dir); !errors.Is(err, rundir.ErrOthers) {
		t.Errorf("somebody else's: %v", err)
	}
}

// TestLogIsLimited repeats one message very often. Few lines appear, and they carry the number of dropped messages.
// Other messages are not affected.
func TestLogIsLimited(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(newLimited(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))).With("nic", "a")
	for range 20_000 {
		log.Warn("client refused")
	}
	log.Warn("something else")
	if n := strings.Count(out.String(), "client refused"); n < logBurst || n > logBurst+5 || !strings.Contains(out.String(), "something else") {
		t.Errorf("%d lines", n)
	}
	s := &sentences{list: map[string]*sentence{}}
	now := time.Now()
	for range 3 * logBurst {
		s.may("again", now)
	}
	if ok, unsaid := s.may("again", now.Add(logPause)); !ok || unsaid != 2*logBurst {
		t.Errorf("%v, %d unsaid", ok, unsaid)
	}
	for i := range 3 * logSentences {
		s.may(strings.Repeat("x", i), now)
	}
	if len(s.list) > logSentences {
		t.Errorf("%d sentences are kept", len(s.list))
	}
}

// counting is a slog.Handler that counts its records.
type counting chan struct{}

func (c counting) Enabled(context.Context, slog.Level) bool  { return true }
func (c counting) Handle(context.Context, slog.Record) error { c <- struct{}{}; return nil }
func (c counting) WithAttrs([]slog.Attr) slog.Handler        { return c }
func (c counting) WithGroup(string) slog.Handler             { return c }

// TestAdmission: idle connections of one user do not exhaust the admin interface.
func TestAdmission(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "admin"))
	if err != nil {
		t.Fatal(err)
	}
	var all quota.Amounts
	all[quota.AdminConnections] = 3
	l := quota.New(quota.Amounts{}, all, nil)
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: 3 * time.Second, IdleTimeout: time.Second}
	served, refusals := make(chan error), make(counting, 10)
	go func() { served <- srv.Serve(&admission{inner, l, slog.New(refusals)}) }()
	for range 6 {
		c, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for i := range 3 {
		select {
		case <-refusals:
		case <-time.After(10 * time.Second):
			t.Fatalf("%d are refused of 6", i)
		}
	}
	for end := time.Now().Add(10 * time.Second); len(l.Usage()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("idle connections stay")
		}
	}
	srv.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
