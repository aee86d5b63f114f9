// Package cli has the commands of rocectl that make a fabric for experiments: hosts with a NIC each, leaves and spines, in
// network namespaces. One process keeps the namespaces. They have no names, so that nothing remains after the process has
// ended.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/rundir"
	"roced.io/roced/internal/daemon/transport"
)

// leafSpine is the only topology.
const leafSpine = "leaf-spine"

// State describes a lab.
type State struct {
	Topology string `json:"topology"`
	Dir      string `json:"dir"` // sockets and logs
	PID      int    `json:"pid"` // of the process that keeps the lab
	Nodes    []Node `json:"nodes"`
	Links    []Link `json:"links"`
	transport.Choice
}

// Node is a host or a switch. Address, RunDir and Leaf are those of a host.
type Node struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"` // path
	Address   string `json:"address,omitempty"`
	RunDir    string `json:"run_dir,omitempty"`
	Leaf      string `json:"leaf,omitempty"`
	Inode     uint64 `json:"inode"` // of the namespace
}

// Link is a veth.
type Link struct {
	A          string `json:"a"`
	AInterface string `json:"a_interface"`
	B          string `json:"b"`
	BInterface string `json:"b_interface"`
	Rate       uint64 `json:"rate,omitempty"` // bits per second of a bottleneck; 0 means unlimited
}

func (s *State) node(name string) *Node {
	i := slices.IndexFunc(s.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

// ownLab is the environment variable of programs in a lab. It contains the folder of the lab, and identifies the programs.
const ownLab = "ROCED_LAB"

// defaultDir returns the folder of the lab in which this program runs, or the lab folder of this user, which is next to
// the run directory of the user's daemon.
func defaultDir() string {
	if dir := os.Getenv(ownLab); dir != "" {
		return dir
	}
	return rundir.OfUser() + "-lab"
}

// lockCommands waits until no other command makes or ends the lab of a folder. The lock is an abstract socket name, which
// the kernel frees when the process ends.
func lockCommands(ctx context.Context, dir string) (release func(), err error) {
	for {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@roced-lab:" + dir, Net: "unixpacket"})
		if err == nil {
			return func() { l.Close() }, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

func inodeOf(path string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Ino, err
}

// read returns the lab of a folder, nil if there is none, and whether it is up.
func read(dir string) (*State, bool, error) {
	err := rundir.CheckFiles(dir)
	var text []byte
	if err == nil {
		text, err = os.ReadFile(filepath.Join(dir, stateFile))
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	s := &State{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, false, fmt.Errorf("%s: %w", stateFile, err)
	}
	held, err := held(dir)
	return s, held, err
}

// held reports whether a process keeps the lab of a folder.
func held(dir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, lockFile)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	f, err := claim(dir)
	if errors.Is(err, errHeld) {
		return true, nil
	}
	if err == nil {
		f.Close()
	}
	return false, err
}

// up returns a lab that is up, or starts a process in the background that makes one.
func up(ctx context.Context, o *options) (*State, error) {
	dir := o.dir
	s, isUp, err := read(dir)
	if err != nil || isUp {
		return s, err
	}
	if err := down(dir); err != nil { // leftovers of a crash
		return nil, err
	}
	if err := rundir.Create(dir); err != nil {
		return nil, err
	}
	log, err := rundir.Replace(filepath.Join(dir, logFile), 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, append([]string{"lab", "keep", leafSpine}, o.arguments()...)...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not signalled by the terminal
	if err := c.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		if s, isUp, err := read(dir); err == nil && isUp {
			return s, nil
		}
		select {
		case <-ended:
			said := lastLine(log.Name())
			return nil, errors.Join(errors.New(said), down(dir))
		case <-ctx.Done():
			err := c.Process.Signal(unix.SIGTERM)
			<-ended
			return nil, errors.Join(context.Cause(ctx), err, down(dir))
		case <-time.After(pollInterval):
		}
	}
}

// lastLine returns the last line of a log, which contains the reason of an exit, without its prefix.
func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	_, said, ok := strings.Cut(lines[len(lines)-1], ": ")
	if !ok {
		return lines[len(lines)-1]
	}
	return said
}

const (
	downLimit = 30 * time.Second // for the keeper, which waits for its daemons
	killAfter = 5 * time.Second  // for other processes in the namespaces; then SIGKILL
)

// down ends a lab or what a crash has left of it, including all processes in its namespaces, and removes its folder.
func down(dir string) error {
	s, isUp, err := read(dir)
	if err != nil {
		return err
	}
	if s != nil && isUp {
		if err := unix.Kill(s.PID, unix.SIGTERM); err != nil {
			return fmt.Errorf("process %d: %w", s.PID, err)
		}
		for deadline := time.Now().Add(downLimit); ; time.Sleep(pollInterval) {
			if isUp, err = held(dir); err != nil || !isUp {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d does not end", s.PID)
			}
		}
	}
	if err != nil {
		return err
	}
	if s != nil {
		if err := evict(s); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// evict ends all processes in the namespaces of a lab.
func evict(s *State) error {
	deadline := time.Now().Add(killAfter)
	for sig := unix.SIGTERM; ; {
		left := members(s)
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("process %d, which is in the lab: %w", pid, err)
			}
		}
		switch now := time.Now(); {
		case now.After(deadline.Add(killAfter)):
			return fmt.Errorf("processes %v do not end", left)
		case now.After(deadline):
			sig = unix.SIGKILL
		}
		time.Sleep(pollInterval)
	}
}

// members returns the processes in the namespaces of a lab. The kernel may reuse the inode number of a namespace after a
// crash, so members also checks the environment of the processes.
func members(s *State) (pids []int) {
	procs, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil
	}
	for _, p := range procs {
		inode, err := inodeOf(p)
		if err != nil || !slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Inode == inode }) {
			continue
		}
		env, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(p)), "environ"))
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), ownLab+"="+s.Dir) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(p, "/")[2]); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
