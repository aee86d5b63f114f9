package containers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/netlab"
)

// Users besides root.
const (
	daemonUser = 1001
	podUser    = 2002
)

// Paths inside a container.
const (
	binDir  = "/opt/roced"
	confDir = "/opt/conf"
	volume  = "/run/roced" // writable for all users, like an emptyDir
	runDir  = volume + "/daemon"
	linkDir = "/run/link"
	meetDir = "/run/meet"
)

// side is one of two hosts: a daemon, and the environment of its clients.
type side struct {
	t      *testing.T
	dir    string // of this side
	log    *os.File
	client *container
	rights rights // of clients
}

// path returns the path outside of a file of this side.
func (s *side) path(name string) string { return filepath.Join(s.dir, name) }

// cell is a case of the matrix.
type cell struct {
	place string // one, siblings, host or pods
	user  int    // of the daemon
	port  string // unix, udp, packet or tap
	// Departures from the defaults.
	hidepid bool
	deny    []string
	memory  int64
	noTun   bool
}

func (c *cell) String() string {
	user := "root"
	if c.user != 0 {
		user = "user"
	}
	return fmt.Sprintf("%s/%s/%s", c.place, user, c.port)
}

// daemonCaps returns the capabilities that opening the port requires.
func (c *cell) daemonCaps() []string {
	switch {
	case c.port == "packet" && (c.user != 0 || c.place == "host"):
		return []string{"CAP_NET_RAW"}
	case c.port == "tap":
		return []string{"CAP_NET_ADMIN"}
	}
	return nil
}

// rights returns the rights of the daemon and of clients.
func (c *cell) rights() (daemon, client rights) {
	more := c.daemonCaps()
	switch {
	case c.place == "pods":
		client = restricted(podUser)
		if daemon = docker(0, more...); c.user != 0 {
			daemon = restricted(c.user, more...)
		}
	case c.place == "one":
		daemon = docker(c.user, more...)
		client = daemon
	default:
		daemon, client = docker(c.user, more...), docker(0)
	}
	daemon.deny, client.deny = c.deny, c.deny
	return daemon, client
}

// lab is two connected sides.
type lab struct {
	t    *testing.T
	cell *cell
	dir  string
	bed  *netlab.Bed
	side [2]*side
}

func newLab(t *testing.T, c *cell) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "ct") // a short path, because it holds sockets
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := &lab{t: t, cell: c, dir: dir}
	l.folder(dir)
	l.folder(filepath.Join(dir, "link"))
	l.folder(filepath.Join(dir, "meet"))
	if c.port != "unix" {
		direct := c.port != "tap"
		l.bed, err = netlab.NewDirect([2]bool{direct, direct})
		must(t, err)
		t.Cleanup(func() { l.bed.Close() })
	}
	return l
}

// folder makes a folder that all users may use.
func (l *lab) folder(path string) {
	l.t.Helper()
	must(l.t, os.MkdirAll(path, 0o777))
	must(l.t, os.Chmod(path, 0o777))
}

// prepare creates the files of a side, and its log.
func (l *lab) prepare(i int) *side {
	t := l.t
	s := &side{t: t, dir: filepath.Join(l.dir, string(rune('a'+i)))}
	for _, d := range []string{"", "run", "conf"} {
		l.folder(s.path(d))
	}
	log, err := os.Create(s.path("log"))
	must(t, err)
	t.Cleanup(func() { log.Close() })
	s.log = log
	run, link := runDir, linkDir
	if l.cell.place == "host" {
		run, link = s.path("run/daemon"), filepath.Join(l.dir, "link")
	}
	addresses := fmt.Sprintf("    addresses: [198.18.0.%d/24]\n", i+1)
	var port string
	switch l.cell.port {
	case "unix":
		port = fmt.Sprintf("{type: unix, local: %q, remote: %q}", fmt.Sprint(link, "/", i), fmt.Sprint(link, "/", 1-i))
	case "packet", "udp":
		port, addresses = fmt.Sprintf("{type: %s, interface: %s}", l.cell.port, netlab.Veth), ""
	case "tap":
		port = fmt.Sprintf("{type: tap, device: tap_%d, bridge: %s}", i, netlab.Bridge)
	}
	name := fmt.Sprintf("rxe_%d", i)
	if l.cell.place == "pods" {
		name = "rxe" // as for replicas: MAC addresses differ by the host name
	}
	text := fmt.Sprintf("run_dir: %q\nprivileges: drop\nnics:\n  - name: %s\n%s    port: %s\n", run, name, addresses, port)
	must(t, os.WriteFile(s.path("conf/roced.yaml"), []byte(text), 0o644))
	return s
}

// binds returns the mounts that containers of a side share.
func (l *lab) binds(s *side) map[string]string {
	return map[string]string{binDir: bin, confDir: s.path("conf"), volume: s.path("run"), linkDir: filepath.Join(l.dir, "link"),
		meetDir: filepath.Join(l.dir, "meet")}
}

// netns returns the network namespace of a side, empty if it needs none.
func (l *lab) netns(i int) string {
	if l.bed == nil {
		return ""
	}
	return l.bed.NS[i].Path()
}

// start starts the daemon of a side, and the container of its clients.
func (l *lab) start(i int) *side {
	l.t.Helper()
	s := l.prepare(i)
	daemon, client := l.cell.rights()
	s.rights = client
	at := setup{rights: daemon, netns: l.netns(i), binds: l.binds(s), tun: l.cell.port == "tap" && !l.cell.noTun, dir: s.dir,
		hidepid: l.cell.hidepid, memory: l.cell.memory}
	if l.cell.place == "host" {
		l.onHost(i, s, daemon)
	} else {
		s.client = at.start(l.t, s.log, binDir+"/roced", "run", "--config", confDir+"/roced.yaml")
	}
	if l.cell.place != "one" {
		at.rights, at.netns, at.tun, at.readOnly = client, "", false, true
		s.client = at.start(l.t, s.log, "sleep", "1000")
	}
	return s
}

// onHost starts the daemon of a side outside the containers.
func (l *lab) onHost(i int, s *side, r rights) {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "roced"), "run", "--config", s.path("conf/roced.yaml"))
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if r.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid)}}
		for _, c := range r.caps {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps,
				map[string]uintptr{"CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN}[c])
		}
	}
	run := cmd.Start
	if l.bed != nil {
		run = func() error { return l.bed.NS[i].Start(cmd) }
	}
	must(l.t, run())
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
}

// answers waits until the daemon of a side accepts commands.
func (s *side) answers() error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", s.path("run/daemon/roced.sock")); err == nil {
			return c.Close()
		}
		if text := s.said(); strings.Contains(text, "roced: ") {
			return errors.New(text)
		}
	}
	return errors.New("the daemon does not answer: " + s.said())
}

// said returns the output of daemon and containers.
func (s *side) said() string {
	text, err := os.ReadFile(s.log.Name())
	must(s.t, err)
	return string(text)
}

// startBoth starts both sides.
func (l *lab) startBoth() {
	l.t.Helper()
	for i := range l.side {
		l.side[i] = l.start(i)
	}
	for _, s := range l.side {
		must(l.t, s.answers())
	}
}

// program returns the command line of a program on one of a side's devices.
func program(args ...string) []string {
	return append([]string{binDir + "/rocectl", "--run-dir", runDir, "exec", "--"}, args...)
}

// transfer moves data of the given kinds of memory between the sides, by default of all kinds.
func (l *lab) transfer(kinds ...string) (res [2]outcome) {
	l.t.Helper()
	var wg sync.WaitGroup
	for i, s := range l.side {
		role := [2]string{"listen", "connect"}[i]
		args := program(append([]string{binDir + "/kinds", role, meetDir + "/socket", "/tmp"}, kinds...)...)
		wg.Go(func() { res[i] = s.client.run(s.rights, nil, args...) })
	}
	wg.Wait()
	return res
}
