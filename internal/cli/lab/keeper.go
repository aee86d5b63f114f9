package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/cli/environment"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/netlab"
)

const (
	nicName     = "rxe0" // on all hosts: UCX wants one name on both sides
	startLimit  = 20 * time.Second
	look        = 20 * time.Millisecond
	lockFile    = "lock"
	stateFile   = "lab.json"
	logFile     = "lab.log"
	daemonLimit = 20 * time.Second // to end in
)

// keep makes a lab and is the process that all of it goes with. It ends with ctx.
func keep(ctx context.Context, dir, port string, o *bottleneck.Options) (err error) {
	lock, err := claim(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	f, err := build(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s := &State{Topology: leafSpine, Dir: dir, PID: os.Getpid(), Links: f.links}
	var daemons []*daemon
	defer func() {
		for _, d := range daemons {
			err = errors.Join(err, d.stop())
		}
	}()
	for _, n := range f.nodes {
		inode, err := inodeOf(n.ns.Path())
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, Node{Name: n.name, Namespace: n.ns.Path(), Inode: inode})
	}
	for l := 1; l <= leaves; l++ {
		for i := 1; i <= hostsPerLeaf; i++ {
			d, err := startDaemon(f.node(hostName(l, i)), filepath.Join(dir, hostName(l, i)), port)
			if err != nil {
				return err
			}
			daemons = append(daemons, d)
			at := s.node(hostName(l, i))
			at.Address, at.RunDir, at.Leaf = hostAddr(l, i), d.runDir, leafName(l)
		}
	}
	for _, d := range daemons {
		if err := d.ready(ctx); err != nil {
			return err
		}
	}
	if err := s.save(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// errHeld says that a lab is there.
var errHeld = errors.New("a lab is up")

// claim makes the folder of a lab and locks it. The lock goes with the process, however that ends.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", dir, errHeld)
		}
		return nil, err
	}
	return f, nil
}

// save makes the state known at once.
func (s *State) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(s.Dir, stateFile)
	if err := os.WriteFile(file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// daemon is roced on a host.
type daemon struct {
	runDir, log string
	cmd         *exec.Cmd
	done        chan error
}

func startDaemon(n *node, runDir, port string) (*daemon, error) {
	program, err := environment.Program("roced")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	d := &daemon{runDir: runDir, log: runDir + ".log", done: make(chan error, 1)}
	config := runDir + ".yaml"
	text := fmt.Sprintf("run_dir: %q\nnics:\n  - {name: %s, port: {type: %s, interface: %s}}\n", runDir, nicName, port, uplink)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(program, "run", "--config", config)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	d.cmd.Env = append(os.Environ(), ownLab+"="+filepath.Dir(runDir))
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.ns.Start(d.cmd); err != nil {
		return nil, err
	}
	go func() { d.done <- d.cmd.Wait() }()
	return d, nil
}

// ready waits until the daemon answers.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if c, err := net.Dial("unix", filepath.Join(d.runDir, api.Socket)); err == nil {
			return c.Close()
		}
		select {
		case err := <-d.done:
			d.done <- err
			return fmt.Errorf("%s: %s", d.runDir, lastLine(d.log))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", d.runDir, ctx.Err())
		case <-time.After(look):
		}
	}
}

func (d *daemon) stop() error {
	if d.cmd.Process.Signal(syscall.SIGTERM) != nil {
		return nil // it has ended
	}
	select {
	case <-d.done:
		return nil
	case <-time.After(daemonLimit):
		return errors.Join(fmt.Errorf("%s does not end", d.runDir), d.cmd.Process.Kill())
	}
}

// keepAsUser is keep of a user who may make no namespaces but in a namespace for users of his own: this program runs again
// in there.
func keepAsUser(ctx context.Context, dir, port string, o *bottleneck.Options) error {
	if ns, err := netlab.NewNamespace(); err == nil {
		ns.Close()
		return keep(ctx, dir, port, o)
	}
	code, err := netlab.InUserNamespace(ctx)
	if errors.Is(err, netlab.ErrNoUserNS) {
		return errors.New("a lab takes root, or user namespaces for ordinary users (sysctl kernel.unprivileged_userns_clone=1, " +
			"user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0, a seccomp profile that permits them)")
	}
	if err == nil && code != 0 {
		err = errAgain
	}
	return err
}

// errAgain is of the program that has run again and has said what was wrong.
var errAgain = errors.New("it has ended")
