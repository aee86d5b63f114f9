package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/internal/lab/namespace"
)

const (
	nicName      = "rxe0"           // on all hosts, because UCX needs the same name on both sides
	startTimeout = 20 * time.Second // of a daemon
	stopTimeout  = 20 * time.Second
	pollInterval = 20 * time.Millisecond
	lockFile     = "lock"
	stateFile    = "lab.json"
	logFile      = "lab.log"
)

// keep makes a lab and keeps it until ctx ends. The lab ends with this process.
func keep(ctx context.Context, o *options, b *bottleneck.Options) (err error) {
	lock, err := claim(o.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	f, err := build(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s := &State{Topology: leafSpine, Dir: o.dir, PID: os.Getpid(), Links: f.links, Choice: o.Choice}
	var daemons []*namespace.Daemon
	defer func() {
		for _, d := range daemons {
			err = errors.Join(err, stop(d))
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
			d, err := startDaemon(f.node(hostName(l, i)), o)
			if err != nil {
				return err
			}
			daemons = append(daemons, d)
			at := s.node(hostName(l, i))
			at.Address, at.RunDir, at.Leaf = hostAddr(l, i), d.RunDir, leafName(l)
		}
	}
	for _, d := range daemons {
		if err := ready(ctx, d); err != nil {
			return err
		}
	}
	if err := s.save(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// errHeld means that a process keeps the lab.
var errHeld = errors.New("a lab is up")

// claim makes the folder of a lab and locks it. The kernel releases the lock when the process ends.
func claim(dir string) (*os.File, error) {
	if err := rundir.Create(dir); err != nil {
		return nil, err
	}
	f, err := rundir.Open(filepath.Join(dir, lockFile), 0o600)
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

// save replaces the state file atomically.
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

// startDaemon starts roced on a host.
func startDaemon(n *node, o *options) (*namespace.Daemon, error) {
	runDir := filepath.Join(o.dir, n.name)
	program, err := environment.Program("roced")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, err
	}
	config := runDir + ".yaml"
	nic := append([]string{"name: " + nicName, fmt.Sprintf("port: {type: %s, interface: %s}", o.port, uplink)}, o.Keys()...)
	text := fmt.Sprintf("run_dir: %q\nnics:\n  - {%s}\n", runDir, strings.Join(nic, ", "))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	c := exec.Command(program, "run", "--config", config)
	c.Env = append(os.Environ(), ownLab+"="+o.dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return n.ns.StartDaemon(c, runDir, runDir+".log")
}

// ready waits until a daemon accepts connections.
func ready(ctx context.Context, d *namespace.Daemon) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := d.Ready(ctx)
	if errors.Is(err, namespace.ErrEnded) {
		err = fmt.Errorf("%s: %s", d.RunDir, lastLine(d.LogFile))
	}
	return err
}

// stop ends a daemon. It ignores the exit code.
func stop(d *namespace.Daemon) error {
	err := d.Stop(syscall.SIGTERM, stopTimeout)
	if errors.As(err, new(*exec.ExitError)) {
		return nil
	}
	return err
}

// keepAsUser is keep for all users. For a user who is not allowed to make network namespaces, it runs this program again
// in a new user namespace, and ends as that program ends, which prints the reason.
func keepAsUser(ctx context.Context, o *options, b *bottleneck.Options) error {
	if ns, err := namespace.New(); err == nil {
		ns.Close()
		return keep(ctx, o, b)
	}
	code, err := namespace.RerunInUserNS(ctx)
	if errors.Is(err, namespace.ErrNoUserNS) {
		return errors.New("a lab " + namespace.NeedsUserNS)
	}
	if err == nil && code != 0 {
		os.Exit(code)
	}
	return err
}
