package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"roced/internal/daemon/api"
	"roced/internal/test/lab"
)

// TestUp starts daemons by one command, as an ordinary user without any right, and ends them.
func TestUp(t *testing.T) {
	bed, dir := confinedBed(t)
	own := filepath.Join(dir, "own")
	lab.Must(t, os.Mkdir(own, 0o755))
	lab.Must(t, os.Chown(own, nobody, nobody))
	run := [2]string{filepath.Join(own, "a"), filepath.Join(own, "b")}
	ctl := func(i int, args ...string) *lab.Proc {
		return lab.LaunchCmd(t, bed.NS[i].Start, confined(append([]string{filepath.Join(dir, "rocectl"), "--run-dir", run[i], "--json"}, args...)...))
	}
	up := func(i int, args ...string) (links []api.Link) {
		t.Helper()
		p := ctl(i, append([]string{"up"}, args...)...)
		lab.Must(t, p.Wait(lab.Limit))
		lab.Must(t, json.Unmarshal([]byte(p.Out.String()), &links))
		return links
	}
	defer func() {
		for i := range run {
			lab.Must(t, ctl(i, "down").Wait(2*lab.Limit))
		}
	}()
	// Without a route that leads out, the interface that has an address; with one, that one's.
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
	for range 2 { // the second time there is none
		lab.Must(t, ctl(0, "down").Wait(2*lab.Limit))
	}
	ctl(0, "link").Fails(lab.Limit, "is roced running?")
}

// defaultRoute makes one by the loopback interface.
func defaultRoute() error {
	l, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
}

// TestUpWithoutDaemon says that roced cannot be found.
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
