package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/quota"
)

// reloaded is a daemon in this process with a configuration file that the test changes.
type reloaded struct {
	*testing.T
	*Daemon
	dir, file string
	api       *http.Client
}

// newReloaded starts a daemon with the NICs rxe_a and rxe_b.
func newReloaded(t *testing.T, top, nic string) *reloaded {
	t.Helper()
	r := &reloaded{T: t, dir: t.TempDir()}
	r.file = filepath.Join(r.dir, "roced.yaml")
	r.write(top, nic, "")
	cfg, err := config.Load(r.file)
	if err != nil {
		t.Fatal(err)
	}
	out := newLogOutput(&cfg.Log)
	r.Daemon, err = Start(cfg, slog.New(out))
	if err != nil {
		t.Fatal(err)
	}
	r.output, r.api = out, client(t, cfg.RunDir)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// write writes the file: keys before the NICs, keys of rxe_a, and more NICs.
func (r *reloaded) write(top, nic, more string) {
	r.Helper()
	text := fmt.Sprintf("run_dir: %[1]s/run\n%[2]s\nnics:\n"+
		"  - {name: rxe_a, addresses: [10.0.0.1/24], port: {type: unix, local: %[1]s/a, remote: %[1]s/b}%[3]s}\n"+
		"  - {name: rxe_b, addresses: [10.0.0.2/24], port: {type: unix, local: %[1]s/b, remote: %[1]s/a}}\n%[4]s",
		r.dir, top, nic, strings.ReplaceAll(more, "DIR", r.dir))
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// accepted reloads and compares the changed keys.
func (r *reloaded) accepted(force bool, want ...string) {
	r.Helper()
	if got, err := r.Reload(force); err != nil || !slices.Equal(got, want) {
		r.Errorf("changed %v, %v, want %v", got, err, want)
	}
}

// refused reloads, expects these words in the error, and checks that nothing has changed.
func (r *reloaded) refused(words ...string) {
	r.Helper()
	before := r.state()
	got, err := r.Reload(false)
	if err == nil {
		r.Fatalf("not refused: %v", got)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("%v, want %q", err, w)
		}
	}
	if after := r.state(); after != before {
		r.Errorf("a refused reload has changed\n%s\nto\n%s", before, after)
	}
}

// state returns everything that a reload can change.
func (r *reloaded) state() string {
	r.Helper()
	var b strings.Builder
	mode := func(path string) {
		st, err := os.Stat(path)
		if err != nil {
			r.Fatal(err)
		}
		fmt.Fprintln(&b, path, st.Mode())
	}
	for _, name := range []string{api.Socket, "rdma_cm"} {
		mode(filepath.Join(r.cfg.RunDir, name))
	}
	live := r.live.Load()
	fmt.Fprintln(&b, live.Control, live.Limits, live.Drain, live.Log, shownIn(r.T, filepath.Join(r.cfg.RunDir, "sysfs")))
	for _, n := range r.nics() {
		var rules []api.FaultRule
		call(r.T, r.api, "GET", "/v1/faults/"+n.cfg.Name, "", 200, &rules)
		p, err := n.makers.Load().byName("")
		fmt.Fprintf(&b, "%s %v %v %v %T %v\n", n.cfg.Name, n.live.Load().Access, rules, n.quota.Usage(), p.Controller, err)
		for _, d := range n.devices {
			mode(filepath.Join(r.cfg.RunDir, fmt.Sprintf("uverbs%d", d.shown.Index)))
		}
	}
	return b.String()
}

// userLimit returns a limit of an ordinary user.
func userLimit(t *testing.T, l *quota.Ledger, k quota.Kind) int64 {
	t.Helper()
	defer l.Open(4711).Close()
	for _, u := range l.Usage() {
		if u.UID == 4711 {
			return u.May[k]
		}
	}
	t.Fatal("the user is not shown")
	return 0
}

// get returns the status of an HTTP request; 0 if nothing listens.
func get(url string) int {
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestReloadedKeys: each key that a reload can change takes effect.
func TestReloadedKeys(t *testing.T) {
	r := newReloaded(t, "", "")
	a := r.nic("rxe_a")
	mode := func(name string) os.FileMode {
		st, err := os.Stat(filepath.Join(r.cfg.RunDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode().Perm()
	}
	each := func(l *quota.Ledger, k quota.Kind) int64 { return userLimit(t, l, k) }
	var metrics string
	for _, c := range []struct {
		top, nic string
		keys     []string
		ok       func() bool
	}{
		{"drain: 7s", "", []string{"drain"}, func() bool { return r.live.Load().Drain.Seconds() == 7 }},
		{"log: {level: debug, format: json}", "", []string{"drain", "log.format", "log.level"}, func() bool {
			return r.output.Enabled(t.Context(), slog.LevelDebug) && strings.Contains(fmt.Sprintf("%T", *r.output.base.Load()), "JSON")
		}},
		{"control: {mode: 0600, users: [4711]}", "", []string{"control.mode", "control.users", "log.format", "log.level"}, func() bool {
			return mode(api.Socket) == 0o600 && slices.Equal(r.live.Load().Control.UIDs, []uint32{4711})
		}},
		{"limits: {qps: 7, memory: 1M, connections: 3, descriptors: 70}", "", []string{"control.mode", "control.users", "limits.connections",
			"limits.descriptors", "limits.memory", "limits.qps"}, func() bool {
			return mode(api.Socket) == 0o666 && each(a.quota, quota.QPs) == 7 && each(a.quota, quota.Memory) == 1<<20 &&
				each(r.quota, quota.NetlinkSockets) == 3 && each(r.quota, quota.Descriptors) == 70
		}},
		{"", ", access: {mode: 0640, users: [4711], groups: [4712]}", []string{"limits.connections", "limits.descriptors", "limits.memory", "limits.qps",
			"nics[rxe_a].access.groups", "nics[rxe_a].access.mode", "nics[rxe_a].access.users"}, func() bool {
			return each(a.quota, quota.QPs) == 4096 && mode("uverbs0") == 0o640 && slices.Equal(a.live.Load().Access.GIDs, []uint32{4712})
		}},
		{"metrics: {listen: '127.0.0.1:0', hosts: [lab]}", "", []string{"metrics.hosts", "metrics.listen", "nics[rxe_a].access.groups", "nics[rxe_a].access.mode",
			"nics[rxe_a].access.users"}, func() bool {
			metrics = "http://" + r.metricsServer.ln.Addr().String() + "/metrics"
			return mode("uverbs0") == 0o666 && get(metrics) == 200
		}},
		{"web: {listen: '127.0.0.1:0', control: true, hosts: [lab]}", "", []string{"metrics.hosts", "metrics.listen", "web.control", "web.hosts", "web.listen"}, func() bool {
			return r.metricsServer == nil && get(metrics) == 0 && r.page.Load().Control && get(r.page.Load().Address) == 200
		}},
		{"", ", faults: ['tx drop n=1', 'rx drop n=2']", []string{"nics[rxe_a].faults", "web.control", "web.hosts", "web.listen"}, func() bool {
			return r.page.Load() == nil && len(a.rules) == 2
		}},
		{"", ", congestion: {algorithm: dcqcn, r_ai_bps: 1e6}", []string{"nics[rxe_a].congestion.algorithm", "nics[rxe_a].congestion.r_ai_bps", "nics[rxe_a].faults"},
			func() bool {
				p, err := a.makers.Load().byName("")
				return err == nil && len(a.rules) == 0 && strings.Contains(strings.ToLower(fmt.Sprintf("%T", p.Controller)), "dcqcn")
			}},
	} {
		r.write(c.top, c.nic, "")
		r.accepted(false, c.keys...)
		if !c.ok() {
			t.Errorf("%s%s has no effect", c.top, c.nic)
		}
	}
}

// TestReloadRollsBack: if a step of a reload fails, the steps before it are undone.
func TestReloadRollsBack(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := newReloaded(t, "metrics: {listen: '127.0.0.1:0'}\nweb: {listen: '127.0.0.1:0'}", ", faults: ['tx drop n=1']")
	address := fmt.Sprintf("{listen: %q}\n", taken.Addr())
	const changes = "control: {mode: 0600}\nlimits: {qps: 5}\nlog: {level: debug}\n"
	const nic = ", faults: ['rx drop n=1'], access: {mode: 0600}, congestion: {algorithm: dcqcn}"
	const added = "  - {name: rxe_c, port: {type: unix, local: DIR/c, remote: DIR/d}}\n"
	for _, c := range []struct{ top, nic, more, want string }{
		{"metrics: " + address, nic, added, "metrics.listen: "},
		{"metrics: {listen: '127.0.0.2:0'}\nweb: " + address, nic, added, "web.listen: "},
		{"", nic, added + "  - {name: rxe_d, port: {type: udp, interface: missing0}}\n", "NIC rxe_d: "},
		{"", nic + ", mtu: 1500", added, `nics.0.mtu: cannot change from "4200" to "1500"`},
	} {
		r.write(changes+c.top, c.nic, c.more)
		r.refused(strings.ReplaceAll(c.want, "DIR", r.dir))
		if get("http://"+r.metricsServer.ln.Addr().String()+"/metrics") != 200 || get(r.page.Load().Address) != 200 {
			t.Errorf("%s: metrics or page have ended", c.want)
		}
		conn := openContext(t, r.cfg.RunDir)
		if _, _, err := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil); err != nil {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	r.write(changes, nic, added)
	text, err := os.ReadFile(r.file)
	if err == nil {
		err = os.WriteFile(r.file, bytes.Replace(text, []byte("name: rxe_a"), []byte("name: rxe_z"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.refused("nics: NIC rxe_z has the port of NIC rxe_a, which is removed: remove that in a reload of its own")
	r.write(changes, nic, added)
	r.accepted(false, "control.mode", "limits.qps", "log.level", "metrics.listen", "nics[rxe_a].access.mode", "nics[rxe_a].congestion.algorithm",
		"nics[rxe_a].faults", "web.listen", "nics[rxe_c], added")
}

// TestReloadAddsWithSettings: an added NIC has the limits and the metrics of the same reload.
func TestReloadAddsWithSettings(t *testing.T) {
	r := newReloaded(t, "", "")
	r.write("limits: {qps: 7}\nmetrics: {listen: '127.0.0.1:0'}", "", "  - {name: c, port: {type: unix, local: DIR/c, remote: DIR/d}}\n")
	r.accepted(false, "limits.qps", "metrics.listen", "nics[c], added")
	n := r.nic("c")
	if got := userLimit(t, n.quota, quota.QPs); got != 7 {
		t.Errorf("%d queue pairs", got)
	}
	if c, err := n.census(t.Context()); err != nil || c.spread == nil {
		t.Errorf("no distributions, %v", err)
	}
}

// TestReloadWithoutPrivileges: a daemon that has dropped its capabilities refuses each NIC that needs one, and adds others.
func TestReloadWithoutPrivileges(t *testing.T) {
	r := newReloaded(t, "", "")
	r.dropped = true
	r.write("", "", "  - {name: c, port: {type: tap}}\n  - {name: d, port: {type: packet, interface: lo}}\n"+
		"  - {name: e, port: {type: xdp, interface: lo2}}\n  - {name: f, port: {type: udp, netns: /run/netns/x, address: 127.0.0.2}}\n"+
		"  - {name: g, port: {type: unix, local: DIR/g, remote: DIR/h}}\n")
	r.refused("nics.2.port", "nics.3.port", "nics.4.port", "nics.5.port", "needs capabilities that the daemon has dropped: restart it")
	r.write("", "", "  - {name: g, port: {type: unix, local: DIR/g, remote: DIR/h}}\n")
	r.accepted(false, "nics[g], added")
}

// TestReloadRemoves: a NIC with clients stays, unless the reload is forced.
func TestReloadRemoves(t *testing.T) {
	const pair = "  - {name: c, port: {type: unix, local: DIR/c, remote: DIR/d}}\n  - {name: d, port: {type: unix, local: DIR/d, remote: DIR/c}}\n"
	r := newReloaded(t, "", "")
	r.write("", "", pair)
	r.accepted(false, "nics[c], added", "nics[d], added")
	conn, err := uverbs.Dial(filepath.Join(r.cfg.RunDir, "uverbs2"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	alive := func() bool {
		_, _, err := conn.Call(uverbs.Command(uverbs.ExtHello, 4096, uverbs.Hello{Version: uverbs.ExtVersion}), nil)
		return err == nil
	}
	if !alive() {
		t.Fatal("the added NIC has no device")
	}
	r.write("", "", "")
	r.refused("nics: NIC c has 1 clients: end them, or use roced reload --force, which disconnects them")
	if !alive() {
		t.Error("a refused reload has disconnected a client")
	}
	r.accepted(true, "nics[c], removed", "nics[d], removed")
	if alive() || r.nic("c") != nil || shownIn(t, filepath.Join(r.cfg.RunDir, "sysfs")) != "uverbs0 uverbs1" {
		t.Error("the NIC is still there")
	}
	r.write("", "", pair)
	r.accepted(false, "nics[c], added", "nics[d], added")
}

// TestReloadKeepsListeners: a reload never leaves the port of the page or of the metrics to other programs. With the same address it
// keeps the listener; otherwise the new one listens before the old one ends, also if one address includes the other.
func TestReloadKeepsListeners(t *testing.T) {
	for _, key := range []string{"web", "metrics"} {
		r := newReloaded(t, key+": {listen: '127.0.0.1:0'}", "")
		server := func() *service {
			if key == "web" {
				return r.pageServer
			}
			return r.metricsServer
		}
		at := func() string { return server().ln.Addr().String() }
		first := at()
		opened := false
		stop := server().stop
		server().stop = func() {
			conn, err := net.Dial("tcp", first)
			if opened = err == nil; opened {
				conn.Close()
			}
			stop()
		}
		r.write(key+": {listen: '127.0.0.1:0', hosts: [lab]}", "", "")
		r.accepted(false, key+".hosts")
		if at() != first || !opened {
			t.Errorf("%s: %s has become %s; open meanwhile: %t", key, first, at(), opened)
		}
		_, port, _ := net.SplitHostPort(first)
		for i, host := range []string{"0.0.0.0", "127.0.0.1", "127.0.0.2"} {
			r.write(fmt.Sprintf("%s: {listen: '%s:%s', hosts: [lab]}", key, host, port), "", "")
			r.accepted(false, key+".listen")
			if want := []string{"[::]", "127.0.0.1", "127.0.0.2"}[i] + ":" + port; at() != want {
				t.Errorf("%s: listens on %s, want %s", key, at(), want)
			}
			if get("http://127.0.0."+[]string{"1", "1", "2"}[i]+":"+port+map[string]string{"web": "/", "metrics": "/metrics"}[key]) != 200 {
				t.Errorf("%s: no answer on %s", key, host)
			}
		}
	}
}

// TestReloadKeepsUnixPage: the socket of the page is there during a reload, and goes with the key.
func TestReloadKeepsUnixPage(t *testing.T) {
	r := newReloaded(t, "", "")
	path := filepath.Join(r.dir, "page")
	answers := func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	r.write("web: {listen: 'unix:"+path+"'}", "", "")
	r.accepted(false, "web.listen")
	opened := false
	stop := r.pageServer.stop
	r.pageServer.stop = func() { opened = answers(); stop() }
	r.write("web: {listen: 'unix:"+path+"', control: true}", "", "")
	r.accepted(false, "web.control")
	if !opened || !answers() || !r.page.Load().Control {
		t.Errorf("open meanwhile %t, afterwards %t, page %+v", opened, answers(), r.page.Load())
	}
	r.write("", "", "")
	r.accepted(false, "web.control", "web.listen")
	if _, err := os.Lstat(path); err == nil || r.page.Load() != nil {
		t.Errorf("%s: %v, page %+v", path, err, r.page.Load())
	}
}
