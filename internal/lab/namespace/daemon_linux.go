package namespace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Daemon is a roced process.
type Daemon struct {
	RunDir, LogFile string
	cmd             *exec.Cmd
	done            chan error
}

// ErrEnded means that a daemon has ended unexpectedly.
var ErrEnded = errors.New("roced has ended")

// StartDaemon starts a daemon in the namespace; see Start. The command writes to the log file.
func (n *Namespace) StartDaemon(c *exec.Cmd, runDir, logFile string) (*Daemon, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	if err := n.Start(c); err != nil {
		return nil, err
	}
	d := &Daemon{RunDir: runDir, LogFile: logFile, cmd: c, done: make(chan error, 1)}
	go func() { d.done <- c.Wait() }()
	return d, nil
}

// PID returns the process ID.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Ready waits until the daemon accepts connections.
func (d *Daemon) Ready(ctx context.Context) error {
	for {
		if c, err := net.Dial("unix", filepath.Join(d.RunDir, "roced.sock")); err == nil {
			return c.Close()
		}
		select {
		case err := <-d.done:
			d.done <- err
			return ErrEnded
		case <-ctx.Done():
			return fmt.Errorf("%s: roced does not answer: %w", d.RunDir, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop signals the daemon, waits for it and returns the error of its exit. It kills the daemon after the timeout. It does
// nothing if the daemon has ended already.
func (d *Daemon) Stop(sig os.Signal, timeout time.Duration) error {
	if d.cmd.Process.Signal(sig) != nil {
		return nil
	}
	select {
	case err := <-d.done:
		return err
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("%s: roced has not ended within %v", d.RunDir, timeout), d.cmd.Process.Kill())
	}
}
