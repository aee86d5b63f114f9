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

const transport = "../../../examples/transport"

// TestTransport: an external module with a transport in at most 300 lines builds a simulator, a daemon and a rocectl that
// have it.
func TestTransport(t *testing.T) {
	lines := 0
	for _, file := range []string{"sack/sack.go", "sack/sender.go"} {
		source, err := os.ReadFile(filepath.Join(transport, file))
		lab.Must(t, err)
		lines += bytes.Count(source, []byte("\n"))
	}
	if lines > 300 {
		t.Errorf("the transport has %d lines", lines)
	}
	in(t, transport, "vet", "./...")
	in(t, transport, "test", "./...")
	in(t, transport, "build", "-o", lab.Bin+"/", "./...")
	t.Run("rocesim", sprayed)
	t.Run("roced", sackOnWire)
}

// arrivedFields returns the number of acknowledgements of a trace with the field "arrived", and whether one is not zero.
func arrivedFields(t *testing.T, file string) (n int, set bool) {
	t.Helper()
	f, err := os.Open(file)
	lab.Must(t, err)
	defer f.Close()
	tr, err := trace.Read(f)
	lab.Must(t, err)
	for _, r := range tr.Records {
		if v, ok := r.Fields["arrived"]; ok && r.Event == "ack" {
			n, set = n+1, set || v != 0
		}
	}
	return n, set
}

// sprayed runs the module's scenario with its simulator: one of eight paths loses a hundredth of its packets.
func sprayed(t *testing.T) {
	scenario, file := filepath.Join(transport, "spray.yaml"), filepath.Join(t.TempDir(), "qp.json")
	run := func(program string, more ...string) (string, error) {
		out, err := exec.Command(lab.Program(program), append([]string{"run", scenario, "--json", "-q"}, more...)...).CombinedOutput()
		return string(out), err
	}
	out, err := run("sack-rocesim", "--trace", "h0-h5="+file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var r struct {
		Messages, Timeouts int
		Retransmitted      int `json:"retransmitted_packets"`
		Duplicates         int `json:"duplicate_packets"`
	}
	lab.Must(t, json.Unmarshal([]byte(out), &r))
	if r.Messages != 4 || r.Retransmitted == 0 || r.Retransmitted > 50 || r.Duplicates > 5 || r.Timeouts > 2 {
		t.Errorf("%+v", r)
	}
	if n, set := arrivedFields(t, file); n < 100 || !set {
		t.Errorf("%d acknowledgements with the field, one with packets: %t", n, set)
	}
	for _, c := range []struct{ program, set, want string }{
		{"rocesim", "seed=1", `no transport profile "sack", there are`},
		{"sack-rocesim", "transport.recovery.distance_packets=0", "retrans: sack: distance_packets is 0, it must be between 1 and 256"},
		{"sack-rocesim", "transport.recovery={name: irn}", "the tracker and the recovery sack need each other"},
	} {
		if out, err := run(c.program, "--set", c.set); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s --set %s: %v, %s", c.program, c.set, err, out)
		}
	}
}

// sackOnWire runs the module's daemon in two namespaces. Payload arrives intact over lossy links, captures and traces name the
// fields of the transport, and malformed fields are dropped and counted.
func sackOnWire(t *testing.T) {
	for program, fails := range map[string]bool{"sack-roced": false, "roced": true} {
		out, err := exec.Command(lab.Program(program), "check", "--config", filepath.Join(transport, "nic.yaml")).CombinedOutput()
		if (err != nil) != fails {
			t.Errorf("%s check: %v, %s", program, err, out)
		}
	}
	replace(t, "roced", "sack-roced")
	l := lab.New(t, netlab.LabOptions{Extra: "    profile: sack\n"})
	for i := range 2 {
		l.Run(i, "fault", "add", l.Host[i].Device, "rx drop p=0.005 seed=5")
	}
	traced, captured := filepath.Join(l.Dir, "t.json"), filepath.Join(l.Dir, "c.pcapng")
	tracing := l.Ctl(0, "trace", l.Host[0].Device, "--next", "-w", traced)
	capturing := l.Ctl(0, "capture", l.Host[0].Device, "-w", captured)
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit)
	defer cancel()
	lab.Must(t, netlab.WaitFile(ctx, traced))
	lab.Must(t, netlab.WaitFile(ctx, captured))
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
	if n, set := arrivedFields(t, traced); n < 100 || !set {
		t.Errorf("%d acknowledgements with the field, one with packets: %t", n, set)
	}
	capturing.Signal(os.Interrupt)
	if code := capturing.Exit(lab.Limit); code != 0 {
		t.Errorf("rocectl capture: exit code %d: %s", code, capturing.Said())
	}
	for program, want := range map[string]string{"sack-rocectl": " arrived 0x", "rocectl": " own "} {
		shown, err := exec.Command(lab.Program(program), "decode", captured).CombinedOutput()
		if err != nil || !bytes.Contains(shown, []byte(want)) {
			t.Errorf("%s decode: %v, without %q", program, err, want)
		}
	}
}
