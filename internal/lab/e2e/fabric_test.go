package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
	fabric "roced.io/roced/internal/lab/cli"
	"roced.io/roced/internal/lab/netlab"
)

// labs runs `rocectl lab` with a folder. At the end the folder and all parts of the lab must be gone.
type labs struct {
	t     *testing.T
	bin   string // folder of programs
	dir   string
	start func(*exec.Cmd) error
	links []string // of this namespace, before the test
}

func newLabs(t *testing.T, bin string, start func(*exec.Cmd) error) *labs {
	l := &labs{t: t, bin: bin, dir: filepath.Join(lab.Dir(t), "lab"), start: start}
	l.links = interfaces(t)
	t.Cleanup(func() {
		l.run("down")
		l.nothingLeft()
	})
	return l
}

func interfaces(t *testing.T) (names []string) {
	entries, err := os.ReadDir("/sys/class/net")
	lab.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// begin starts a command of the lab.
func (l *labs) begin(args ...string) *lab.Proc {
	l.t.Helper()
	return lab.Launch(l.t, l.start, append([]string{filepath.Join(l.bin, "rocectl"), "lab", "--dir", l.dir}, args...))
}

// run runs a command of the lab, which must succeed.
func (l *labs) run(args ...string) string {
	l.t.Helper()
	p := l.begin(args...)
	lab.Must(l.t, p.Wait(lab.Limit))
	return p.Out.String()
}

// state parses the lab in a command's output.
func (l *labs) state(text string) (s fabric.State) {
	l.t.Helper()
	lab.Must(l.t, json.Unmarshal([]byte(text), &s))
	if len(s.Nodes) != 8 || len(s.Links) != 8 {
		l.t.Fatalf("%+v", s)
	}
	return s
}

// inhabitants returns the processes of the lab: those with its folder in their environment or command line.
func (l *labs) inhabitants() (found []string) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	lab.Must(l.t, err)
	for _, p := range procs {
		line, err := os.ReadFile(p + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		env, err := os.ReadFile(p + "/environ")
		if err == nil && strings.Contains(string(env), "="+l.dir+"\x00") || strings.Contains(string(line), l.dir) {
			found = append(found, p+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// nothingLeft checks that no processes, folders and links remain. Namespaces need no check: they have no names, and
// only the processes hold them.
func (l *labs) nothingLeft() {
	l.t.Helper()
	lab.Eventually(l.t, lab.Limit, "no process left", func() bool { // the keeper ends after the lab is down
		return len(l.inhabitants()) == 0
	})
	if pathExists(l.dir) {
		l.t.Errorf("%s is there", l.dir)
	}
	if now := interfaces(l.t); !slices.Equal(now, l.links) {
		l.t.Errorf("links %v, before %v", now, l.links)
	}
}

// perf moves memory from h1 to h3, on the other leaf. Their TCP connection also uses the fabric.
func (l *labs) perf() {
	l.t.Helper()
	perf := []string{"--", filepath.Join(l.bin, "roceperf"), "write-bw", "-s", "64k", "-n", "64", "-q", "16", "--verify"}
	server := l.begin(append([]string{"exec", "h3"}, perf...)...)
	lab.Must(l.t, server.Listens(18515))
	l.run(append([]string{"exec", "h1"}, append(perf, "198.18.2.1")...)...)
	lab.Must(l.t, server.Wait(lab.Limit))
}

// received returns the number of packets that an interface has received, by /proc/net/dev.
func received(t *testing.T, text, iface string) int {
	t.Helper()
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == iface+":" {
			n, err := strconv.Atoi(f[2])
			lab.Must(t, err)
			return n
		}
	}
	t.Fatalf("no %s in %s", iface, text)
	return 0
}

// asRoot skips a test that needs root's namespaces.
func asRoot(t *testing.T) {
	if os.Geteuid() != 0 && netlab.Own() == netlab.Unprivileged {
		t.Skip("needs root")
	}
}

// TestLab makes a fabric with one command, which runs twice concurrently, and ends it with the processes in it.
func TestLab(t *testing.T) {
	lab.Long(t)
	asRoot(t)
	l := newLabs(t, lab.Bin, (*exec.Cmd).Start)
	up := []string{"up", "leaf-spine", "--json", "--profile", "irn", "--congestion", "dcqcn"}
	a, b := l.begin(up...), l.begin(up...)
	lab.Must(t, a.Wait(lab.Limit))
	lab.Must(t, b.Wait(lab.Limit))
	s := l.state(a.Out.String())
	if other := l.state(b.Out.String()); other.PID != s.PID {
		t.Errorf("kept by %d and by %d", s.PID, other.PID)
	}
	l.perf()
	for _, spine := range []string{"spine1", "spine2"} { // 16 connections by 16 source ports
		if n := received(t, l.run("exec", spine, "--", "cat", "/proc/net/dev"), "leaf1"); n < 20 {
			t.Errorf("%s has %d packets of leaf1: they are not spread", spine, n)
		}
	}
	if text := l.run("exec", "h2", "--", lab.Program("rocectl"), "link"); !strings.Contains(text, "rxe0/1: state ACTIVE") || !strings.Contains(text, "198.18.1.2") ||
		!strings.Contains(text, "profile irn") || !strings.Contains(text, "dcqcn") {
		t.Error(text)
	}
	l.begin("up", "leaf-spine", "--profile", "melo").Fails(lab.Limit, "a lab with another transport is up")
	if p := l.begin("exec", "h9"); p.Exit(lab.Limit) != 2 || !strings.Contains(p.Diag.String(), `no "h9"`) {
		t.Error(p.Said())
	}
	stays := l.begin("exec", "h4", "--", "sh", "-c", "echo here; exec sleep 1000")
	lab.Must(t, stays.Ready("it is there", func() (bool, error) { return stays.Out.String() != "", nil }))
	l.run("down")
	l.nothingLeft()
	stays.Exit(lab.Limit)
	l.begin("show").Fails(lab.Limit, "rocectl lab up leaf-spine")
	l.run("down") // there is nothing to do
}

// TestLabBottleneck puts a bottleneck on the links between leaves and spines.
func TestLabBottleneck(t *testing.T) {
	lab.Long(t)
	asRoot(t)
	lab.Need(t, "tc")
	l := newLabs(t, lab.Bin, (*exec.Cmd).Start)
	s := l.state(l.run("up", "leaf-spine", "--bottleneck", "rate=2gbit", "--port", "packet", "--json"))
	if i := slices.IndexFunc(s.Links, func(k fabric.Link) bool { return k.A == "leaf1" && k.B == "spine2" }); i < 0 || s.Links[i].Rate != 2e9 {
		t.Errorf("%+v", s.Links)
	}
	if text := l.run("exec", "leaf1", "--", "tc", "qdisc", "show", "dev", "spine2"); !strings.Contains(text, "tbf") || !strings.Contains(text, "2Gbit") {
		t.Error(text)
	}
	l.perf()
}

// TestLabCrash kills the process that keeps a lab. All parts except a folder disappear with it.
func TestLabCrash(t *testing.T) {
	lab.Long(t)
	asRoot(t)
	l := newLabs(t, lab.Bin, (*exec.Cmd).Start)
	s := l.state(l.run("up", "leaf-spine", "--json"))
	lab.Must(t, syscall.Kill(s.PID, syscall.SIGKILL))
	lab.Eventually(t, lab.Limit, "a lab without processes", func() bool { return len(l.inhabitants()) == 0 })
	l.begin("show").Fails(lab.Limit, "ended unexpectedly")
	again := l.state(l.run("up", "leaf-spine", "--json"))
	if again.PID == s.PID {
		t.Error("it is the old one")
	}
	l.perf()
}

// TestLabInterrupted interrupts the command with Ctrl-C while it waits for daemons that never answer.
func TestLabInterrupted(t *testing.T) {
	lab.Long(t)
	asRoot(t)
	bin := lab.Dir(t)
	lab.Must(t, copyPrograms(bin, "rocectl"))
	lab.Must(t, os.WriteFile(filepath.Join(bin, "roced"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	l := newLabs(t, bin, (*exec.Cmd).Start)
	p := l.begin("up", "leaf-spine")
	lab.Must(t, p.Ready("it starts daemons", func() (bool, error) { return pathExists(filepath.Join(l.dir, "h4.log")), nil }))
	p.Signal(os.Interrupt)
	p.Fails(lab.Limit, "interrupt")
	l.nothingLeft()
}

// TestLabOfAnOrdinaryUser runs a lab in a user namespace.
func TestLabOfAnOrdinaryUser(t *testing.T) {
	lab.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become an ordinary user")
	}
	bin := lab.Dir(t)
	lab.Must(t, os.Chmod(bin, 0o755))
	lab.Must(t, copyPrograms(bin, "rocectl", "roced", "roceperf"))
	own := filepath.Join(bin, "own")
	lab.Must(t, os.Mkdir(own, 0o755))
	lab.Must(t, os.Chown(own, nobody, nobody))
	l := newLabs(t, bin, func(c *exec.Cmd) error {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		return c.Start()
	})
	l.dir = filepath.Join(own, "lab")
	for _, args := range [][]string{{"--bottleneck", "rate=1gbit"}, {"--port", "xdp"}} {
		l.begin(append([]string{"up", "leaf-spine"}, args...)...).Fails(lab.Limit, "needs root, because")
	}
	p := l.begin("up", "leaf-spine", "--json")
	if code := p.Exit(lab.Limit); code != 0 {
		if strings.Contains(p.Diag.String(), "a lab needs root, or user namespaces") {
			t.Skip(p.Diag.String())
		}
		t.Fatal(p.Said())
	}
	l.state(p.Out.String())
	l.perf()
}
