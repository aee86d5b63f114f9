// Package local makes NICs in the process of a Go program, without a daemon: for tests of RDMA code, examples and
// programs that bring their own NIC. The NICs have the configuration of the daemon, with its ports, switches,
// transports, fault rules and captures, and package verbs opens them. docs/guides/embedding.md explains how.
//
//	nics, err := local.Start(local.Pair, nil)
//	defer nics.Close()
//	ctx, err := nics.Open("rxe_a")
//
// One program owns such NICs. They end with it, and a fault of the program can damage them: between the program and
// its NICs there is no isolation. The daemon isolates its clients from each other; use it for NICs that several
// programs share.
//
// Polls and posts run the NIC on the caller's thread, which saves the hand-over to a daemon. A program that waits by
// polling its memory must call CQ.Poll meanwhile.
package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"roced.io/roced/internal/daemon"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/verbs"
)

// Pair is a configuration with two NICs, rxe_a and rxe_b, that are connected to each other. It needs no privilege and
// no network.
const Pair = `
nics:
  - {name: rxe_a, addresses: [198.18.0.1/24], port: {type: unix, local: a, remote: b}}
  - {name: rxe_b, addresses: [198.18.0.2/24], port: {type: unix, local: b, remote: a}}
`

// NICs are the NICs of a configuration.
type NICs struct {
	daemon *daemon.Daemon
	runDir string
	close  func() error
}

// Start makes the NICs of a configuration in YAML, the format of roced.yaml(5). The environment does not apply. The
// run directory is a temporary one that only this user can read, unless the configuration has run_dir. Start reports
// events to log, which may be nil.
//
// The NICs of one process count against its limits of descriptors and memory, and each raises GOMAXPROCS by one.
func Start(yaml string, log *slog.Logger) (n *NICs, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	own, err := os.MkdirTemp("", "roced-")
	if err != nil {
		return nil, err
	}
	n = &NICs{}
	cfg, err := config.ReadIn(own, []byte(yaml))
	if err == nil {
		n.runDir = cfg.RunDir
		n.daemon, err = daemon.Start(cfg, log)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	n.daemon.ShareTurns()
	n.close = sync.OnceValue(func() error { return errors.Join(n.daemon.Close(), os.RemoveAll(own)) })
	return n, nil
}

// Ready waits until the links of all NICs are active.
func (n *NICs) Ready(ctx context.Context) error { return n.daemon.Ready(ctx) }

// RunDir returns the run directory, for verbs.WithRunDir and for rocectl, which shows, captures and disturbs the
// traffic as it does that of a daemon.
func (n *NICs) RunDir() string { return n.runDir }

// Open opens a device by its name, as verbs.Open does.
func (n *NICs) Open(name string, opts ...verbs.Option) (*verbs.Context, error) {
	return verbs.Open(name, append(opts, verbs.WithRunDir(n.runDir))...)
}

// Close ends the NICs. Their contexts then report verbs.ErrDeviceFatal.
func (n *NICs) Close() error { return n.close() }
