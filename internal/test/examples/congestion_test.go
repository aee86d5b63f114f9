package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/perf"
	"roced.io/roced/internal/observe/trace"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

const module = "../../../examples/congestion"

// in runs the go command in a module.
func in(t *testing.T, module string, args ...string) string {
	t.Helper()
	c := exec.Command("go", args...)
	c.Dir = module
	c.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -trimpath", "CGO_ENABLED=0") // as in internal/test/commands, whose build it shares
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s\nif modules are missing: cd %s && go mod tidy", strings.Join(args, " "), err, out, module)
	}
	return string(out)
}

// TestCongestion: an external module with a congestion control in less than 100 lines builds a simulator and a daemon
// that have it. Our own programs do not have it.
func TestCongestion(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(module, "aimd/aimd.go"))
	lab.Must(t, err)
	if n := bytes.Count(source, []byte("\n")); n >= 100 {
		t.Errorf("the congestion control has %d lines", n)
	}
	in(t, module, "vet", "./...")
	in(t, module, "test", "./...")
	in(t, module, "build", "-o", lab.Bin+"/", "./...")
	t.Run("rocesim", simulated)
	t.Run("roced", onWire)
}

// replace makes the lab start a program of a module instead of ours.
func replace(t *testing.T, program, by string) {
	t.Helper()
	ours := lab.Program(program)
	lab.Must(t, os.Rename(ours, ours+"-ours"))
	t.Cleanup(func() { lab.Must(t, os.Rename(ours+"-ours", ours)) })
	lab.Must(t, os.Rename(lab.Program(by), ours))
}

// TestDocument: the code in docs/guides/extending.md equals the modules'.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/guides/extending.md")
	lab.Must(t, err)
	var code []byte
	for _, pattern := range []string{module + "/*/*.go", module + "/*.yaml", transport + "/*/*.go"} {
		files, err := filepath.Glob(pattern)
		lab.Must(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			lab.Must(t, err)
			code = append(code, b...)
		}
	}
	blocks := strings.Split(string(text), "```go\n")[1:]
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		for line := range strings.Lines(b) {
			if !bytes.Contains(code, []byte(line)) {
				t.Errorf("no module has %q", line)
			}
		}
	}
	if len(blocks) < 5 {
		t.Errorf("%d blocks of code", len(blocks))
	}
}

// limits returns the windows of a trace.
func limits(t *testing.T, file string) (windows []uint64, tr *trace.Trace) {
	t.Helper()
	f, err := os.Open(file)
	lab.Must(t, err)
	defer f.Close()
	tr, err = trace.Read(f)
	lab.Must(t, err)
	for _, r := range tr.Records {
		if r.Event == "limits" && r.Window != nil {
			windows = append(windows, *r.Window)
		}
	}
	return windows, tr
}

// checkAIMD: the window begins with ten packets, grows, and halves. One acknowledgement may report both a loss and
// arrived packets. The window has then grown again by at most two packets.
func checkAIMD(t *testing.T, windows []uint64, mtu uint64) {
	t.Helper()
	grown, halved := 0, 0
	for i := 1; i < len(windows); i++ {
		was, is := windows[i-1], windows[i]
		switch {
		case is > was && is-was <= 64*mtu:
			grown++
		case is < was && is <= was/2+2*mtu && is+1 >= was/2:
			halved++
		}
	}
	if len(windows) == 0 || windows[0] != 10*mtu || grown < 10 || halved < 2 {
		t.Errorf("%d windows, the first of %v bytes; %d times it grew, %d times it halved", len(windows), windows[:min(len(windows), 3)], grown, halved)
	}
}

// simulated runs the module's scenario with its simulator.
func simulated(t *testing.T) {
	scenario, file := filepath.Join(module, "incast.yaml"), filepath.Join(t.TempDir(), "qp.json")
	run := func(program string, more ...string) (string, error) {
		out, err := exec.Command(lab.Program(program), append([]string{"run", scenario, "--json", "-q"}, more...)...).CombinedOutput()
		return string(out), err
	}
	queue := func(more ...string) int {
		out, err := run("aimd-rocesim", more...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", more, err, out)
		}
		var r struct {
			Messages int
			Peak     int `json:"peak_queue_bytes"`
		}
		lab.Must(t, json.Unmarshal([]byte(out), &r))
		if r.Messages != 8 {
			t.Errorf("%d messages", r.Messages)
		}
		return r.Peak
	}
	with, without := queue("--trace", "h1-h0="+file), queue("--set", "transport.congestion={name: none}")
	if with > without/4 {
		t.Errorf("the queue has up to %d bytes, without congestion control %d", with, without)
	}
	windows, _ := limits(t, file)
	checkAIMD(t, windows, 1000)
	for _, c := range []struct{ program, set, want string }{
		{"rocesim", "seed=1", `no congestion control "aimd", there are`},
		{"aimd-rocesim", "transport.congestion.target=0", "ccalgo: aimd: target is 0, it must be between 1 and 1000"},
		{"aimd-rocesim", "transport.congestion.goal=2", `ccalgo: aimd has no parameter "goal"`},
	} {
		if out, err := run(c.program, "--set", c.set); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s --set %s: %v, %s", c.program, c.set, err, out)
		}
	}
}

// onWire runs the module's daemon in two namespaces. Payload arrives intact over lossy links, and the trace shows the
// windows of the module's congestion control.
func onWire(t *testing.T) {
	if out, err := exec.Command(lab.Program("aimd-roced"), "check", "--config", filepath.Join(module, "nic.yaml")).CombinedOutput(); err != nil {
		t.Errorf("the module's configuration: %v, %s", err, out)
	}
	if out, err := exec.Command(lab.Program("roced"), "check", "--config", filepath.Join(module, "nic.yaml")).CombinedOutput(); err == nil {
		t.Errorf("our daemon has its congestion control: %s", out)
	}
	replace(t, "roced", "aimd-roced")
	const extra = "    profile: irn\n    congestion: {algorithm: aimd, base_rtt_us: 100000, max_packets: 64}\n"
	l := lab.New(t, netlab.LabOptions{Extra: extra})
	if g := l.Link(0).Congestion; g == nil || g.Algorithm != "aimd" || g.Params["max_packets"] != 64 {
		t.Errorf("link shows congestion control %+v", g)
	}
	for i := range 2 {
		l.Run(i, "fault", "add", l.Host[i].Device, "rx drop p=0.005 seed=5")
	}
	l.Run(0, "fault", "add", l.Host[0].Device, "tx drop psn=+400 n=1", "tx drop psn=+2000 n=1", "tx drop psn=+4000 n=1", "tx drop psn=+6000 n=1") // random loss may be too small
	file := filepath.Join(l.Dir, "t.json")
	tracing := l.Ctl(0, "trace", l.Host[0].Device, "--next", "-w", file)
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit)
	defer cancel()
	lab.Must(t, netlab.WaitFile(ctx, file))
	socket := filepath.Join(l.Dir, "s")
	args := []string{lab.Program("roceperf"), "write-bw", "-s", "64k", "-n", "400", "-q", "1", "--verify", "--oob", "unix:" + socket, "--run-dir"}
	server := l.Start(1, append(args, l.Host[1].RunDir)...)
	lab.Must(t, netlab.WaitFile(ctx, socket))
	out := l.Output(0, append(args, l.Host[0].RunDir, "--json", "peer")...)
	if code := server.Exit(lab.Limit); code != 0 {
		t.Errorf("roceperf: exit code %d: %s", code, server.Said())
	}
	var r perf.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Verified || r.Messages < 400 {
		t.Errorf("%v, %s", err, out)
	}
	if code := tracing.Exit(lab.Limit); code != 0 {
		t.Fatalf("rocectl trace: exit code %d: %s", code, tracing.Said())
	}
	windows, tr := limits(t, file)
	checkAIMD(t, windows, uint64(tr.Start.MTU))
}
