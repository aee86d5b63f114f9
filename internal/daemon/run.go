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

// Run runs a daemon until SIGTERM or SIGINT, then drains it. A second signal ends it at once. SIGHUP reloads the
// configuration.
func Run(cfg *config.Config) error {
	out := newLogOutput(&cfg.Log)
	log := slog.New(newLimited(out))
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, unix.SIGTERM, unix.SIGINT)
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, unix.SIGHUP)
	defer signal.Stop(sig)
	d, err := Start(cfg, log)
	if err != nil {
		return err
	}
	d.reloading.Lock() // the admin interface can ask for a reload
	d.output = out
	err = d.dropPrivileges()
	d.reloading.Unlock()
	if err != nil {
		return errors.Join(err, d.Close())
	}
	running, end := context.WithCancel(context.Background())
	defer end()
	go trim(running)
	log.Info("roced is ready", "run_dir", cfg.RunDir, "pid", os.Getpid())
	s := d.waitForEnd(sig, hangUp)
	log.Info("draining", "signal", s, "at_most", d.live.Load().Drain)
	ctx, cancel := context.WithTimeout(context.Background(), d.live.Load().Drain)
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

// waitForEnd returns the signal that ends the daemon. Before it, each SIGHUP reloads the configuration.
func (d *Daemon) waitForEnd(sig, hangUp <-chan os.Signal) os.Signal {
	for {
		select {
		case s := <-sig:
			return s
		case <-hangUp:
			if changed, err := d.Reload(false); err != nil {
				d.log.Error("reload refused, nothing has changed", "err", err)
			} else {
				d.log.Info("configuration reloaded", "changed", changed)
			}
		}
	}
}
