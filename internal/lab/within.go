package lab

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"roced.io/roced/internal/daemon"
	"roced.io/roced/internal/daemon/config"
)

// Within is a daemon in the process of the test, with two connected NICs, rxe_a and rxe_b.
type Within struct {
	Dir, RunDir string
	Stop        func() error // ends the daemon; further calls do nothing
}

// NewWithin starts the daemon. name is the prefix of its folder.
func NewWithin(t testing.TB, name string) *Within {
	t.Helper()
	w, err := StartWithin(name)
	Must(t, err)
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(w.Dir)
	})
	return w
}

// StartWithin is like NewWithin, but the caller calls Stop and removes Dir.
func StartWithin(name string) (*Within, error) {
	dir, err := os.MkdirTemp("", name) // short, for sockets
	if err != nil {
		return nil, err
	}
	nic := "  - {name: rxe_%s, addresses: [198.18.0.%d/24], port: {type: unix, local: %q, remote: %q}}\n"
	a, b := dir+"/a", dir+"/b"
	cfg, err := config.Read(strings.NewReader(fmt.Sprintf("run_dir: %q\nnics:\n"+nic+nic, dir+"/run", "a", 1, a, b, "b", 2, b, a)))
	if err != nil {
		return nil, err
	}
	d, err := daemon.Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return &Within{Dir: dir, RunDir: dir + "/run", Stop: sync.OnceValue(d.Close)}, nil
}
