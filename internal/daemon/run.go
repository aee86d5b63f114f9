package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/config"
)

// Run runs a daemon until SIGTERM or SIGINT, then drains it. A second signal ends it at once.
func Run(cfg *config.Config) error {
	log := newLogger(&cfg.Log)
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, unix.SIGTERM, unix.SIGINT)
	signal.Ignore(unix.SIGHUP)
	defer signal.Stop(sig)
	d, err := Start(cfg, log)
	if err != nil {
		return err
	}
	if err := d.dropPrivileges(); err != nil {
		return errors.Join(err, d.Close())
	}
	running, end := context.WithCancel(context.Background())
	defer end()
	go trim(running)
	log.Info("roced is ready", "run_dir", cfg.RunDir, "pid", os.Getpid())
	s := <-sig
	log.Info("draining", "signal", s, "at_most", cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Drain)
	go func() {
		select {
		case <-sig:
			log.Warn("second signal, ending at once")
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := d.Drain(ctx); err != nil {
		log.Warn("not everything could be finished", "err", err)
	}
	cancel()
	err = d.Close()
	log.Info("roced has ended")
	return err
}

// newLogger creates the logger of the configuration.
func newLogger(c *config.Log) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // validated
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(newLimited(slog.NewJSONHandler(os.Stderr, opts)))
	}
	return slog.New(newLimited(slog.NewTextHandler(os.Stderr, opts)))
}
