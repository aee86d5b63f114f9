package dut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// rocedCaps are the capabilities of a daemon of ours that libibverbs does not report.
var rocedCaps = []string{"vlan", "ecn", "second"}

// StartRoced starts a daemon with one NIC on AF_UNIX datagrams, and the agent on it. It needs no privilege.
func StartRoced(ctx context.Context, t Traffic) (*Session, error) {
	bin, err := programs("roced", "rocectl", agentProgram)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rocedrill")
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, dir: dir, traffic: t}
	s, err := d.start(ctx)
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return s, nil
}

// daemon is a running daemon in a folder of its own.
type daemon struct {
	bin, dir string
	traffic  Traffic
	cmd      *exec.Cmd
	ended    <-chan struct{}
	log      bytes.Buffer
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

func (d *daemon) start(ctx context.Context) (*Session, error) {
	l, err := openSocket(d.path("dut"+testerSuffix), d.path("dut"))
	if err != nil {
		return nil, err
	}
	addresses := fmt.Sprintf("addresses: [%v/15, \"%v/64\", %v/15, \"%v/64\"]", dutIP, dutIP6, secondIP, secondIP6)
	if v := d.traffic.VLAN; v != 0 {
		addresses = fmt.Sprintf("addresses: [%v/24], vlans: [{id: %d, %s}]", otherIP, v, addresses)
	}
	config := fmt.Sprintf("run_dir: %s\nnics:\n  - {name: rxe_dut, %s, port: {type: unix, local: %s, remote: %s}}\n",
		d.path("run"), addresses, d.path("dut"), d.path("dut"+testerSuffix))
	if err := os.WriteFile(d.path("roced.yaml"), []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, l.close())
	}
	d.cmd = command(ctx, filepath.Join(d.bin, "roced"), "run", "--config", d.path("roced.yaml"))
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	d.ended = wait(d.cmd)
	if err := d.ready(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	agent, err := startProcess(ctx, filepath.Join(d.bin, "rocectl"), "--run-dir", d.path("run"), "exec", "--", agentIn(d.bin))
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	o := options(0)
	o.Caps = rocedCaps
	d.traffic.apply(&o)
	s := newSession(o, l, agent, d.stop)
	s.local = []int{d.cmd.Process.Pid, agent.cmd.Process.Pid}
	if err := s.open(ctx, "device=rxe_dut"); err != nil {
		return nil, errors.Join(err, s.Close(), fmt.Errorf("the daemon's log:\n%s", d.log.String()))
	}
	return s, nil
}

// ready waits for the daemon's socket.
func (d *daemon) ready(ctx context.Context) error {
	const tries, pause = 200, 50 * time.Millisecond
	for range tries {
		if _, err := os.Stat(d.path("run/roced.sock")); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ended:
			return fmt.Errorf("%w: the daemon ends:\n%s", ErrLost, d.log.String())
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("%w: the daemon does not start:\n%s", ErrLost, d.log.String())
}

func (d *daemon) stop() error {
	if d.ended != nil {
		d.cmd.Process.Signal(os.Interrupt)
		end(d.cmd, d.ended)
	}
	return os.RemoveAll(d.dir)
}
