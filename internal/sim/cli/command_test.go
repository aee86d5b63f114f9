package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/internal/base/cpushare"
)

const scenarios = "../../../configs/sim/"

func rocesim(args ...string) (code int, out, diag string) {
	var o, d bytes.Buffer
	code = Main(args, &o, &d)
	return code, o.String(), d.String()
}

// TestHelp: the help of each command has a description and an example of the command itself.
func TestHelp(t *testing.T) {
	for _, c := range newCommand(nil, nil).Commands() {
		for _, c := range append(c.Commands(), c) {
			path := strings.Fields(c.CommandPath())[1:]
			code, out, _ := rocesim(append(path, "--help")...)
			if want := "  " + c.CommandPath() + " "; code != 0 || !strings.Contains(out, "Examples:\n"+want) || len(c.Long)+len(c.Commands()) == 0 {
				t.Errorf("%s: code %d\n%s", c.CommandPath(), code, out)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	stuck := filepath.Join(dir, "stuck.yaml")
	text := `topology: {kind: pair, host_rate: 1Gbps}
transport: {profile: rc, ack_timeout: 1us}
workload: [{kind: permutation, size: 10MB}]
events: [{at: 1us, link: h0-h1, do: fail}]
`
	if err := os.WriteFile(stuck, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--help"}, 0, "Examples:"},
		{[]string{"run", "--help"}, 0, "--seeds"},
		{[]string{"run"}, 2, "usage:"},
		{[]string{"run", "none.yaml"}, 2, "none.yaml"},
		{[]string{"papers", "--rows", scenarios + "papers", "--shard", "3/2"}, 2, `--shard "3/2"`},
		{[]string{"papers", "--rows", scenarios + "papers", "--shard", "1/2x"}, 2, `--shard "1/2x"`},
		{[]string{"papers", "--rows", scenarios + "papers", "--shard", "1/2", "--precise"}, 2, "excludes --precise and --docs"},
		{[]string{"run", "--nonsense", "x"}, 2, "nonsense"},
		{[]string{"run", scenarios + "incast.yaml", "--set", "topology.spines=0"}, 2, "topology.spines"},
		{[]string{"run", scenarios + "incast.yaml", "--seeds", "3..1"}, 2, "expected seeds"},
		{[]string{"run", scenarios + "incast.yaml", "--pcapng", "leaf9-h0=x"}, 2, `no link "leaf9-h0"`},
		{[]string{"run", scenarios + "incast.yaml", "--trace", "h0-h99=x"}, 2, "--trace h0-h99: no host h99; hosts are h0 to h31"},
		{[]string{"run", scenarios + "incast.yaml", "--trace", "h3-h3=x"}, 2, "--trace h3-h3: a host has no connection to itself"},
		{[]string{"run", scenarios + "incast.yaml", "--trace", "h1-h0#2=x"}, 2, `--trace "h1-h0#2=x": expected two hosts and a file, such as h1-h0=FILE`},
		{[]string{"run", scenarios + "incast.yaml", "--set", "transport.recovery.name=nosuch"}, 2, `no loss recovery "nosuch", there are [eunomia gobackn`},
		{[]string{"run", scenarios + "incast.yaml", "--set", "transport.profile=irm"}, 2, `did you mean "irn"?`},
		{[]string{"run", scenarios + "incast.yaml", "--set", "transport.congestion.name=swift", "--set", "transport.congestion.hop=3"}, 2, "it has ai_packets, beta"},
		{[]string{"run", scenarios + "incast.yaml", "--set", "transport.mtu=0"}, 2, "0 bytes are not from 64 to 9000"},
		{[]string{"list", "congestion", "swift"}, 0, "base_target_us        number  default 50"},
		{[]string{"list", "workload", "incast"}, 0, "rounds     integer"},
		{[]string{"list", "--json"}, 0, `"kind": "topology"`},
		{[]string{"list", "recovry"}, 2, `did you mean "recovery"?`},
		{[]string{"list", "recovery", "irm"}, 2, `did you mean "irn"?`},
		{[]string{"run", scenarios + "incast.yaml", "--queue", "h0-leaf0"}, 2, `no switch has a link "h0-leaf0"`},
		{[]string{"run", scenarios + "incast.yaml", "--format", "xls"}, 2, "must be one of csv, hpcc"},
		{[]string{"run", scenarios + "incast.yaml", "--profile", "--seeds", "1..2"}, 2, "require a single seed"},
		{[]string{"run", stuck, "-q"}, 0, "2 failed"},
		{[]string{"run", scenarios + "incast.yaml", "--queue", "leef0-h0"}, 2, `did you mean "leaf0-h0"?`},
		{[]string{"runn"}, 2, `did you mean "run"?`},
		{[]string{"topology", "shwo"}, 2, `did you mean "show"?`},
		{[]string{"run", "--seedss", "1"}, 2, `did you mean "--seeds"?`},
		{[]string{"nonsense"}, 2, `unknown command "nonsense"`},
		{[]string{"topology", "nonsense"}, 2, `unknown command "nonsense"`},
		{[]string{"sweep", scenarios + "incast.yaml"}, 2, "--out"},
		{[]string{"sweep", scenarios + "incast.yaml", "-o", dir, "--vary", "x"}, 2, "such as transport.profile=rc,irn"},
		{[]string{"sweep", scenarios + "incast.yaml", "-o", dir, "--kubernetes"}, 2, "--image and --claim"},
		{[]string{"sweep", scenarios + "incast.yaml", "-o", dir, "--jobs", "3"}, 2, "--parallel"},
		{[]string{"sweep", scenarios + "incast.yaml", "-o", dir, "--format", "xls"}, 2, "must be one of csv, hpcc"},
		{[]string{"work", dir}, 2, "not a sweep"},
		{[]string{"collect", dir}, 2, "not a sweep"},
		{[]string{"collect", dir, "--set", "seed=1"}, 2, "unknown flag"},
		{[]string{"topology", "show", scenarios + "incast.yaml"}, 0, "32 hosts, 8 switches, 48 cables"},
	} {
		code, out, diag := rocesim(c.args...)
		if code != c.code || !strings.Contains(out+diag, c.want) {
			t.Errorf("%v: code %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, diag)
		}
	}
}

// TestRun: a run writes all of its outputs. Parallel seeds have the same results as single ones.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	quick := []string{"--set", "workload.0.rounds=1", "--set", "workload.0.size=64KB", "--check", "-q"}
	args := append([]string{"run", scenarios + "incast.yaml", "--svg", file("svg"), "--out", file("out"), "--queue", "leaf0-h0",
		"--trace", "h1-h0=" + file("new/qp.json"), "--pcapng", "leaf0-h0=" + file("new/p.pcapng")}, quick...)
	if code, _, diag := rocesim(args...); code != 0 {
		t.Fatal(diag)
	}
	for _, name := range []string{"svg/slowdown.svg", "svg/queues.svg", "svg/goodput.svg", "svg/fct.svg", "svg/h1-h0/trace-sequence.svg", "out/queues.csv", "out/flows.csv", "out/ports.csv", "out/samples.csv", "out/summary.json", "new/qp.json", "new/p.pcapng"} {
		if s, err := os.Stat(file(name)); err != nil || s.Size() < 200 {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone := append([]string{"run", scenarios + "incast.yaml", "--seed", "2", "--json"}, quick...)
	_, out, _ := rocesim(alone...)
	var one, several struct {
		Seed     uint64
		Messages int
		FCT      struct{ Mean float64 } `json:"fct_us"`
	}
	if err := json.Unmarshal([]byte(out), &one); err != nil || one.Messages != 30 {
		t.Fatalf("%v: %+v", err, one)
	}
	_, out, _ = rocesim(append([]string{"run", scenarios + "incast.yaml", "--seeds", "1..2", "--json"}, quick...)...)
	d := json.NewDecoder(strings.NewReader(out))
	for seed := uint64(1); seed <= 2; seed++ {
		if err := d.Decode(&several); err != nil || several.Seed != seed {
			t.Fatalf("%v: %+v", err, several)
		}
	}
	if several != one {
		t.Errorf("alone %+v, beside another %+v", one, several)
	}
}

// TestOutputsFirst: an output that cannot be written ends a run before it begins. A traced connection must open.
func TestOutputsFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		option, value string
		code          int
		says          string
	}{
		{"--trace", "h1-h0=" + file + "/qp.json", 2, "not a directory"},
		{"--pcapng", "leaf0-h0=" + file + "/p.pcapng", 2, "not a directory"},
		{"--out", file, 2, "not a directory"},
		{"--svg", file + "/svg", 2, "not a directory"},
		{"--trace", "h0-h1=" + file, 1, "no connection from h0 to h1 has opened"},
	} {
		code, out, diag := rocesim("run", scenarios+"incast.yaml", "--set", "workload.0.rounds=1", "-q", c.option, c.value)
		if code != c.code || !strings.Contains(diag, c.says) || (code == 2) != (out == "") {
			t.Errorf("%s %s: code %d\n%s%s", c.option, c.value, code, out, diag)
		}
	}
}

// TestProfile: --profile lists each part, with a larger share for the fabric than for applications.
func TestProfile(t *testing.T) {
	code, out, diag := rocesim("run", scenarios+"permutation.yaml", "--set", "workload.0.size=6MB", "--profile", "-q", "--json")
	var r struct{ CPU []cpushare.Share }
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || len(r.CPU) != len(parts)+1 {
		t.Fatalf("code %d, %v\n%s%s", code, err, out, diag)
	}
	took := map[string]time.Duration{}
	for _, c := range r.CPU {
		took[c.Name] = c.Time
	}
	if took["fabric"] < 10*time.Millisecond || took["transport"] == 0 || took["workload"] > took["fabric"] {
		t.Errorf("%v", took)
	}
}

// TestPapersWithoutDocument: without --docs, a row writes only its runs. Its JSON is valid although one of its ratios is
// 0 to 0.
func TestPapersWithoutDocument(t *testing.T) {
	withoutRaces(t)
	rows, err := filepath.Abs(scenarios + "papers")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	code, out, diag := rocesim("papers", "eu-2", "--fast", "--quiet", "--json", "--rows", rows)
	if code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 1 || files[0].Name() != "out" {
		t.Errorf("%v, %v", files, err)
	}
}

// TestEndless: a file without end is refused with its name.
func TestEndless(t *testing.T) {
	for _, line := range []string{"run /dev/zero", "sweep /dev/zero --out " + t.TempDir()} {
		if code, _, diag := rocesim(strings.Fields(line)...); code != 2 || !strings.Contains(diag, "/dev/zero: longer than the limit of 16 MiB") {
			t.Errorf("%s: exit code %d: %s", line, code, diag)
		}
	}
}
