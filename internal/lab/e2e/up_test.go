package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/background"
	"roced.io/roced/internal/lab"
)

// TestUp starts daemons by one command as an unprivileged user, and stops them.
func TestUp(t *testing.T) {
	bed, dir := confinedBed(t)
	own := filepath.Join(dir, "own")
	lab.Must(t, os.Mkdir(own, 0o755))
	lab.Must(t, os.Chown(own, nobody, nobody))
	run := [2]string{filepath.Join(own, "a"), filepath.Join(own, "b")}
	ctl := func(i int, args ...string) *lab.Proc {
		return lab.LaunchCmd(t, bed.NS[i].Start, confined(append([]string{filepath.Join(dir, "rocectl"), "--run-dir", run[i], "--json"}, args...)...))
	}
	up := func(i int, args ...string) []api.Link {
		t.Helper()
		return broughtUp(t, ctl(i, append([]string{"up"}, args...)...)).NICs
	}
	defer func() {
		for i := range run {
			lab.Must(t, ctl(i, "down").Wait(2*lab.Limit))
		}
	}()
	// Without a default route, up takes the interface that has an address; with one, the route's interface.
	if l := up(0); len(l) != 1 || l[0].Port != "udp" || l[0].Device != veth || l[0].State != "ACTIVE" {
		t.Fatalf("%+v", l)
	}
	if again := up(0); len(again) != 1 || again[0].Device != veth {
		t.Errorf("the second time: %+v", again)
	}
	ctl(0, "up", "127.0.0.9").Fails(lab.Limit, "no NIC on 127.0.0.9")
	ctl(1, "up", "nothing0").Fails(lab.Limit, "nothing0: no such interface")
	lab.Must(t, bed.NS[1].Do(defaultRoute))
	if l := up(1); len(l) != 1 || l[0].Device != "lo" {
		t.Fatalf("not where the default route leads: %+v", l)
	}
	lab.Must(t, ctl(1, "down").Wait(2*lab.Limit))
	if l := up(1, "198.18.0.2"); len(l) != 1 || len(l[0].GIDs) != 1 || l[0].GIDs[0] != "198.18.0.2" {
		t.Fatalf("by address: %+v", l)
	}
	sock := filepath.Join(own, "oob")
	perf := []string{filepath.Join(dir, "roceperf"), "write-bw", "-s", "64k", "-n", "16", "--verify", "--oob", "unix:" + sock}
	server := lab.LaunchCmd(t, bed.NS[1].Start, confined(append(perf, "--run-dir", run[1])...))
	lab.Must(t, server.Ready("it listens", func() (bool, error) { return pathExists(sock), nil }))
	client := lab.LaunchCmd(t, bed.NS[0].Start, confined(append(perf, "--run-dir", run[0], "peer")...))
	lab.Must(t, client.Wait(lab.Limit))
	lab.Must(t, server.Wait(lab.Limit))
	for range 2 { // the second time nothing runs
		lab.Must(t, ctl(0, "down").Wait(2*lab.Limit))
	}
	ctl(0, "link").Fails(lab.Limit, "is roced running?")
}

// defaultRoute adds a default route by the loopback interface.
func defaultRoute() error {
	l, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
}

// TestUpWithoutDaemon: the message says that roced cannot be found.
func TestUpWithoutDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lab.Must(t, copyPrograms(dir, "rocectl"))
	p := lab.Launch(t, func(c *exec.Cmd) error {
		c.Env = []string{"PATH=" + dir}
		return c.Start()
	}, []string{filepath.Join(dir, "rocectl"), "up", "lo", "--run-dir", filepath.Join(dir, "run")})
	if code := p.Exit(lab.Limit); code != 1 || !strings.Contains(p.Diag.String(), `"roced": executable file not found`) {
		t.Errorf("exit code %d: %s", code, &p.Diag)
	}
}

// broughtUp parses the JSON output of up.
func broughtUp(t *testing.T, p *lab.Proc) (s background.State) {
	t.Helper()
	lab.Must(t, p.Wait(lab.Limit))
	lab.Must(t, json.Unmarshal([]byte(p.Out.String()), &s))
	return s
}

// upTogether starts daemons at the same moment. Each gets loopback addresses of its own.
func upTogether(t *testing.T, start func(...string) *lab.Proc, dir string) {
	t.Helper()
	var at [4]*lab.Proc
	run := func(i int) string { return filepath.Join(dir, fmt.Sprint("together", i)) }
	for i := range at {
		at[i] = start("roced", "up", "--pair", "--run-dir", run(i), "--json")
	}
	taken := map[string]bool{}
	for i, p := range at {
		for _, n := range broughtUp(t, p).NICs {
			if n.State != "ACTIVE" || taken[n.GIDs[0]] {
				t.Errorf("%s of %s: %s", n.GIDs[0], run(i), n.State)
			}
			taken[n.GIDs[0]] = true
		}
		lab.Must(t, start("roced", "down", "--run-dir", run(i)).Wait(2*lab.Limit))
	}
}

// TestUpPair starts two NICs by one command as an unprivileged user. Several such commands run concurrently.
func TestUpPair(t *testing.T) {
	bed, dir := confinedBed(t)
	own := filepath.Join(dir, "own")
	lab.Must(t, os.Mkdir(own, 0o755))
	lab.Must(t, os.Chown(own, nobody, nobody))
	run, captures := filepath.Join(own, "run"), filepath.Join(own, "captures")
	start := func(args ...string) *lab.Proc {
		return lab.LaunchCmd(t, bed.NS[0].Start, confined(append([]string{filepath.Join(dir, args[0])}, args[1:]...)...))
	}
	roced := func(args ...string) *lab.Proc {
		return start(append([]string{"roced"}, append(args, "--run-dir", run)...)...)
	}
	defer func() { lab.Must(t, roced("down").Wait(2*lab.Limit)) }()
	for _, c := range []struct {
		port  string
		addrs [2]string
	}{{"udp", [2]string{"127.0.0.2", "127.0.0.3"}}, {"unix", [2]string{"198.18.0.1", "198.18.0.2"}}} {
		var at [4]*lab.Proc
		for i := range at {
			at[i] = roced("up", "--pair", "--port", c.port, "--json", "--captures", captures)
		}
		pid := 0
		for _, p := range at {
			s := broughtUp(t, p)
			if pid == 0 {
				pid = s.PID
			}
			if s.PID == 0 || s.PID != pid {
				t.Errorf("daemons %d and %d", pid, s.PID)
			}
			if len(s.NICs) != 2 || s.NICs[0].State != "ACTIVE" || s.NICs[1].State != "ACTIVE" || s.NICs[0].GIDs[0] != c.addrs[0] || s.NICs[1].GIDs[0] != c.addrs[1] {
				t.Fatalf("%+v", s.NICs)
			}
		}
		checkConfined(t, pid)
		again := roced("up") // it asks for one NIC, and accepts the running pair
		lab.Must(t, again.Wait(lab.Limit))
		for _, want := range []string{"# rxe_b: ACTIVE, " + c.addrs[1], "export ROCED_RUN_DIR='" + run + "'\n"} {
			if !strings.Contains(again.Out.String(), want) {
				t.Errorf("no %q in %s", want, &again.Out)
			}
		}
		// Without the preload library the output names the limitation.
		if !strings.Contains(again.Diag.String(), "unmodified programs cannot run") {
			t.Error(&again.Diag)
		}
		between(t, start, run, filepath.Join(own, c.port))
		if c.port == "udp" {
			second := filepath.Join(own, "second")
			if s := broughtUp(t, start("roced", "up", "--pair", "--run-dir", second, "--json")); s.NICs[1].GIDs[0] != "127.0.0.5" {
				t.Errorf("the next pair: %+v", s.NICs)
			}
			lab.Must(t, start("roced", "down", "--run-dir", second).Wait(2*lab.Limit))
			lab.Must(t, syscall.Kill(pid, syscall.SIGKILL)) // the next iteration starts after a crash of the daemon
			continue
		}
		lab.Must(t, roced("down").Wait(2*lab.Limit))
		for _, name := range []string{"rxe_a", "rxe_b"} {
			if s, err := os.Stat(filepath.Join(captures, name+".pcapng")); err != nil || s.Size() < 64<<10 {
				t.Errorf("capture of %s: %v", name, err)
			}
		}
	}
	upTogether(t, start, own)
	if s := broughtUp(t, roced("up", "lo", "--json")); len(s.NICs) != 1 {
		t.Errorf("%+v", s.NICs)
	}
	roced("up", "--pair").Fails(lab.Limit, "one NIC only (roced down ends it)")
	start("roced", "up", "--run-dir", filepath.Join(dir, "notmine")).Fails(lab.Limit, "permission denied")
}

// TestUpWithOptions starts NICs with a live page, a transport profile and a congestion control.
func TestUpWithOptions(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	run := filepath.Join(lab.Dir(t), "run")
	rocectl := func(args ...string) *lab.Proc {
		return lab.Launch(t, (*exec.Cmd).Start, append([]string{lab.Program("rocectl"), "--run-dir", run}, args...))
	}
	defer func() { lab.Must(t, rocectl("down").Wait(2*lab.Limit)) }()
	lab.Must(t, rocectl("up", "--pair", "--port", "unix").Wait(lab.Limit))
	rocectl("page").Fails(lab.Limit, "roced down, then roced up --web")
	rocectl("up", "--web").Fails(lab.Limit, "serves no page (roced down ends it)")
	rocectl("up", "--profile", "irn").Fails(lab.Limit, "rxe_a has profile rc, not irn")
	rocectl("up", "--pair", "--no-switch").Fails(lab.Limit, "its NICs are on a switch")
	rocectl("up", "--write-segments", "single").Fails(lab.Limit, "applies only to new NICs")
	rocectl("up", "--congestion", "dcqcn").Fails(lab.Limit, "rxe_a has congestion control none, not dcqcn")
	lab.Must(t, rocectl("down").Wait(2*lab.Limit))
	lab.Must(t, rocectl("up", "--pair", "--no-switch", "--port", "unix", "--write-segments", "single").Wait(lab.Limit))
	lab.Must(t, rocectl("down").Wait(2*lab.Limit))
	args := []string{"up", "--pair", "--port", "unix", "--web", "--profile", "irn", "--congestion", "dcqcn", "--json"}
	for range 2 { // the second time, the NICs are as requested
		for _, n := range broughtUp(t, rocectl(args...)).NICs {
			if n.Profile != "irn" || n.Congestion == nil || n.Congestion.Algorithm != "dcqcn" {
				t.Errorf("%+v", n)
			}
		}
	}
	page := rocectl("page")
	lab.Must(t, page.Wait(lab.Limit))
	r, err := http.Get(strings.TrimSpace(page.Out.String()))
	lab.Must(t, err)
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", &page.Out, r.Status)
	}
	for _, c := range [][]string{{"--profile", "quic"}, {"--congestion", "cubic"}, {"--write-segments", "one"}, {"--write-segments", "single", "--pair"}, {"--profile", "mp-rdma", "--congestion", "dcqcn"}} {
		if p := rocectl(append([]string{"up"}, c...)...); p.Exit(lab.Limit) != 2 || !strings.Contains(p.Diag.String(), c[0]) && !strings.Contains(p.Diag.String(), "its own") {
			t.Error(p.Said())
		}
	}
}

// between moves memory from one NIC of a pair to the other.
func between(t *testing.T, start func(...string) *lab.Proc, run, sock string) {
	t.Helper()
	perf := []string{"roceperf", "write-bw", "-s", "64k", "-n", "16", "--verify", "--run-dir", run, "--oob", "unix:" + sock, "--device"}
	server := start(append(perf, "rxe_a")...)
	lab.Must(t, server.Ready("it listens", func() (bool, error) { return pathExists(sock), nil }))
	lab.Must(t, start(append(perf, "rxe_b", "peer")...).Wait(lab.Limit))
	lab.Must(t, server.Wait(lab.Limit))
}
