package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/observe/pcapng"
)

// childEnv makes the test binary run a daemon with the configuration file that it names.
const childEnv = "ROCED_TEST_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		cfg, err := config.Load(path)
		if err == nil {
			err = Run(cfg)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// configFile writes a configuration with two connected NICs.
func configFile(t *testing.T) (path, runDir string) {
	t.Helper()
	dir := t.TempDir()
	runDir = filepath.Join(dir, "run")
	text := fmt.Sprintf(`
run_dir: %[1]s/run
drain: 1h
metrics: {listen: "127.0.0.1:0"}
nics:
  - {name: rxe_a, addresses: [10.0.0.1/24], mtu: 1500, port: {type: unix, local: %[1]s/a, remote: %[1]s/b}}
  - {name: rxe_b, addresses: [10.0.0.2/24], mtu: 1500, port: {type: unix, local: %[1]s/b, remote: %[1]s/a},
     capture: {file: %[1]s/b.pcapng}}
`, dir)
	path = filepath.Join(dir, "roced.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, runDir
}

// child starts a daemon as a separate process.
func child(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childEnv+"="+path)
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool)
	var log bytes.Buffer
	go func() {
		told := false
		for s := bufio.NewScanner(pipe); s.Scan(); {
			if !told {
				fmt.Fprintln(&log, s.Text())
			}
			if !told && strings.Contains(s.Text(), "roced is ready") {
				told = true
				ready <- true
			}
		}
		if !told {
			ready <- false
		}
	}()
	if !<-ready {
		t.Fatalf("the daemon did not start:\n%s", &log)
	}
	return c
}

// client returns an HTTP client of the admin interface.
func client(t *testing.T, runDir string) *http.Client {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(runDir, api.Socket))
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// call sends a request and decodes the answer into out, unless out is nil.
func call(t *testing.T, c *http.Client, method, path, body string, want int, out any) {
	t.Helper()
	req, err := http.NewRequest(method, "http://roced"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, b, err)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	}
}

func openContext(t *testing.T, runDir string) *uverbs.Conn {
	t.Helper()
	conn, err := uverbs.Dial(filepath.Join(runDir, "uverbs0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, fds, err := conn.Call(uverbs.Command(uverbs.CmdGetContext, 8, uverbs.GetContext{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[0].FD)
	return conn
}

func TestProcessLife(t *testing.T) {
	path, runDir := configFile(t)
	c := child(t, path)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(cfg, slog.New(newLogOutput(&cfg.Log))); !errors.Is(err, ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	openContext(t, runDir)
	// kill -9 leaves sockets and files behind; the next start ignores them.
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	for _, tree := range []string{"sysfs", "nic/rxe_c"} {
		if err := os.MkdirAll(filepath.Join(runDir, tree, "class/infiniband_verbs/uverbs9"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c = child(t, path)
	for tree, want := range map[string]string{"sysfs": "uverbs0 uverbs1", "nic/rxe_a": "uverbs0", "nic/rxe_b": "uverbs1", "nic/rxe_c": ""} {
		if got := shownIn(t, filepath.Join(runDir, tree)); got != want {
			t.Errorf("%s shows %q, want %q", tree, got, want)
		}
	}
	conn := openContext(t, runDir)
	start := time.Now()
	if err := c.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer late.Stop()
	if err := c.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if d := time.Since(start); d < drainQuiet*drainLook {
		t.Errorf("draining an idle client took %v", d)
	}
	if _, _, err := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil); err == nil {
		t.Error("the connection has outlived the daemon")
	}
	left, err := filepath.Glob(filepath.Join(runDir, "*"))
	if err != nil || len(left) != 1 { // only the lock file
		t.Errorf("left behind: %v %v", left, err)
	}
}

// shownIn returns the names of the verbs devices in a tree.
func shownIn(t *testing.T, tree string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(tree, "class/infiniband_verbs/*/ibdev"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	return strings.Join(names, " ")
}

// startHere starts a daemon in this process.
func startHere(t *testing.T, admins ...uint32) (*Daemon, string) {
	t.Helper()
	return startWith(t, func(c *config.Config) { c.Control.UIDs = admins })
}

// startWith starts a daemon with a changed configuration.
func startWith(t *testing.T, change func(c *config.Config)) (*Daemon, string) {
	t.Helper()
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log.Level = "error"
	change(cfg)
	d, err := Start(cfg, slog.New(newLogOutput(&cfg.Log)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, runDir
}

func TestAdmin(t *testing.T) {
	d, runDir := startHere(t)
	c := client(t, runDir)
	conn := openContext(t, runDir)
	if _, _, err := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil); err != nil {
		t.Fatal(err)
	}
	var links []api.Link
	call(t, c, "GET", "/v1/links", "", 200, &links)
	if len(links) != 2 || links[0].Name != "rxe_a" || links[0].Clients != 1 || len(links[0].GIDs) != 2 || links[0].Poll != "50µs" {
		t.Errorf("links %+v", links)
	}
	var res []api.Resource
	call(t, c, "GET", "/v1/res/pd", "", 200, &res)
	if len(res) != 1 || res[0].PD == nil || res[0].PID != int32(os.Getpid()) || res[0].NIC != "rxe_a" {
		t.Errorf("resources %+v", res)
	}
	for kind := range listers {
		call(t, c, "GET", "/v1/res/"+kind, "", 200, &res)
	}
	call(t, c, "GET", "/v1/res/cats", "", 404, nil)
	var stats []api.Stat
	call(t, c, "GET", "/v1/stat/rxe_b", "", 200, &stats)
	if len(stats) != 1 || len(stats[0].Counters) == 0 {
		t.Errorf("stats %+v", stats)
	}
	for _, path := range []string{"stat", "faults"} {
		var fault api.Fault
		call(t, c, "GET", "/v1/"+path+"/none", "", 404, &fault)
		if !strings.Contains(fault.Error, "none; there are rxe_a, rxe_b") {
			t.Errorf("%s: %q", path, fault.Error)
		}
	}
	var rules []api.FaultRule
	call(t, c, "POST", "/v1/faults/rxe_a", `{"rules": ["tx drop p=0.5 seed=1"]}`, 200, &rules)
	call(t, c, "POST", "/v1/faults/rxe_a", `{"rules": ["rx drop n=2"]}`, 200, &rules)
	if len(rules) != 2 {
		t.Errorf("rules %+v", rules)
	}
	call(t, c, "POST", "/v1/faults/rxe_a", `{"rules": ["explode"]}`, 400, nil)
	call(t, c, "POST", "/v1/faults/rxe_a", `{"ruls": []}`, 400, nil)
	call(t, c, "DELETE", "/v1/faults/rxe_a", "", 200, &rules)
	if len(rules) != 0 {
		t.Errorf("rules %+v", rules)
	}
	var poll api.PollSetting
	call(t, c, "PUT", "/v1/poll/rxe_a", `{"poll": "0"}`, 200, &poll)
	call(t, c, "GET", "/v1/poll/rxe_a", "", 200, &poll)
	if poll.Poll != "0" {
		t.Errorf("poll %+v", poll)
	}
	for _, url := range []string{"http://roced/metrics", "http://" + d.metricsServer.ln.Addr().String() + "/metrics"} {
		resp, err := map[bool]*http.Client{true: c, false: {Transport: &http.Transport{DisableKeepAlives: true}}}[strings.Contains(url, "roced")].Get(url)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		for _, want := range []string{`roced_sent_pkts_total{device="rxe_a",port="1"}`, `roced_objects{device="rxe_a",port="1",type="pd"} 1`,
			`node_infiniband_port_data_transmitted_bytes_total{device="rxe_a",port="1"}`, `roced_rx_dropped_total{device="rxe_a",port="1",reason="icrc"} 0`,
			`roced_message_latency_seconds_count{device="rxe_a",operation="write",port="1"}`,
			`roced_build_info{goversion="` + version.Own().Go + `",`,
			`version="` + version.Number + `"} 1`} {
			if !bytes.Contains(b, []byte(want)) {
				t.Errorf("%s lacks %s", url, want)
			}
		}
	}
}

// TestMetricsHost: metrics on TCP answer requests that name this host, but no page of another name.
func TestMetricsHost(t *testing.T) {
	d, _ := startWith(t, func(c *config.Config) { c.Metrics.Hosts = []string{"node1.example.org"} })
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"": 200, "localhost:9464": 200, "[::1]": 200, "NODE1.example.org:80": 200, own: 200,
		"evil.example.org": 421, own + ".evil.example.org": 421, "127.0.0.1.evil.example.org:9464": 421} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.metricsServer.ln.Addr().String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("host %q: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestStreams(t *testing.T) {
	d, runDir := startHere(t)
	c := client(t, runDir)
	resp, err := c.Get("http://roced/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	d.events.send(api.Event{NIC: "rxe_a", Object: "qp", Number: 7, Event: "qp_fatal"})
	for dec := json.NewDecoder(resp.Body); ; {
		var e api.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Number == 7 {
			break // port events may precede it
		}
	}
	ask := func(method, path string) *http.Response {
		req, _ := http.NewRequest(method, "http://roced/v1/capture/rxe_a"+path, nil)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	capt := ask("POST", "?id=x")
	for _, bad := range [][2]string{{"POST", "?id=x"}, {"POST", "?id=" + strings.Repeat("y", maxName+1)}, {"DELETE", "/y"}} {
		if code := ask(bad[0], bad[1]).StatusCode; code != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, code)
		}
	}
	r, err := pcapng.NewReader(capt.Body)
	if err != nil {
		t.Fatal(err)
	}
	// Link-local neighbour discovery or ARP starts when a peer appears. An address handle triggers it now.
	go func() {
		conn := openContext(t, runDir)
		pd, _, _ := conn.Call(uverbs.Command(uverbs.CmdAllocPD, 4, uverbs.AllocPD{}), nil)
		ah := uverbs.CreateAH{PDHandle: uint32(pd[0]), Attr: uverbs.AHAttr{IsGlobal: 1, PortNum: 1,
			GRH: uverbs.GlobalRoute{DGID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SGIDIndex: 0, HopLimit: 1}}}
		_, _, _ = conn.Call(uverbs.Command(uverbs.CmdCreateAH, 16, ah), nil)
	}()
	var fr pcapng.Frame
	if err := r.Next(&fr); err != nil {
		t.Errorf("no frame was captured: %v", err)
	}
	if code := ask("DELETE", "/x").StatusCode; code != http.StatusNoContent {
		t.Errorf("the end is answered by %d", code)
	}
	for err == nil {
		err = r.Next(&fr)
	}
	if err != io.EOF {
		t.Errorf("the capture ends by %v", err)
	}
	ask("POST", "?id=x") // the name is free again
}

func TestForeignUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's connection needs root")
	}
	_, runDir := startHere(t, 12345)
	for _, dir := range []string{runDir, filepath.Dir(runDir), filepath.Dir(filepath.Dir(runDir))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[uint32]string{65534: "403", 12345: "200"} {
		cmd := exec.Command("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket",
			filepath.Join(runDir, api.Socket), "http://roced/v1/links")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.Output()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip("there is no curl")
		}
		if err != nil || string(out) != want {
			t.Errorf("user %d: %s %v", uid, out, err)
		}
	}
}
