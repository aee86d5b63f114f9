package dut

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// RocedCaps are the capabilities of a daemon of ours that libibverbs reaches.
var RocedCaps = []string{"rc", "uc", "ud", "srq", "mw", "atomic", "ipv6", "vlan", "ecn", "inval"}

// StartRoced starts a daemon with one NIC on AF_UNIX datagrams, and the agent on it. It needs no privilege. bin is the folder
// of the programs.
func StartRoced(bin string) (*Session, error) {
	dir, err := os.MkdirTemp("", "rocedrill")
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, dir: dir}
	s, err := d.start()
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return s, nil
}

// daemon is a running daemon in a folder of its own.
type daemon struct {
	bin, dir string
	cmd      *exec.Cmd
	log      bytes.Buffer
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

func (d *daemon) start() (*Session, error) {
	l, err := openSocket(d.path("tester"), d.path("dut"))
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("run_dir: %s\nnics:\n  - {name: rxe_dut, addresses: [%v/15, %v/64], port: {type: unix, local: %s, remote: %s}}\n",
		d.path("run"), dutIP, dutIP6, d.path("dut"), d.path("tester"))
	if err := os.WriteFile(d.path("roced.yaml"), []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, l.close())
	}
	d.cmd = exec.Command(filepath.Join(d.bin, "roced"), "run", "--config", d.path("roced.yaml"))
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	if err := d.ready(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	agent, err := startAgent(filepath.Join(d.bin, "rocectl"), "--run-dir", d.path("run"), "exec", "--", filepath.Join(d.bin, "rocedrill-agent"))
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	s := newSession(l, agent, d.stop)
	s.Caps, s.Slack = RocedCaps, 3*time.Second
	if err := s.open("rxe_dut"); err != nil {
		return nil, errors.Join(err, s.Close(), fmt.Errorf("the daemon's log:\n%s", d.log.String()))
	}
	return s, nil
}

// ready waits for the daemon's socket.
func (d *daemon) ready() error {
	const tries, pause = 200, 50 * time.Millisecond
	for range tries {
		if _, err := os.Stat(d.path("run/roced.sock")); err == nil {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("the daemon does not start:\n%s", d.log.String())
}

func (d *daemon) stop() error {
	if d.cmd != nil && d.cmd.Process != nil {
		d.cmd.Process.Signal(os.Interrupt)
		d.cmd.Wait()
	}
	return os.RemoveAll(d.dir)
}

// process is the agent with its standard input and output.
type process struct {
	cmd *exec.Cmd
	io.WriteCloser
	io.Reader
}

// startAgent starts a program that is the agent.
func startAgent(program string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.WriteCloser, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.Reader, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// Close closes the agent's standard input, upon which it ends.
func (p *process) Close() error {
	err := p.WriteCloser.Close()
	const limit = 5 * time.Second
	timer := time.AfterFunc(limit, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	p.cmd.Wait()
	return err
}
