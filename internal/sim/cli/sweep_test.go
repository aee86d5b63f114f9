package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// asRocesim is the environment variable that makes this test binary act as rocesim.
const asRocesim = "TEST_AS_ROCESIM"

// raced reports that the race detector is active. It skips tests that run other processes for a long time; the other
// tests cover races.
var raced bool

func withoutRaces(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("it is run without the race detector")
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(asRocesim) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// small shortens the incast to milliseconds.
var small = []string{"--set", "workload.0.rounds=1", "--set", "workload.0.size=64KB"}

// table reads a CSV file.
func table(t *testing.T, dir, name string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// runsOf reads runs.csv, without the column that differs between runs.
func runsOf(t *testing.T, dir string) [][]string {
	t.Helper()
	rows := table(t, dir, "runs.csv")
	seconds := slices.Index(rows[0], "seconds")
	for i := range rows {
		rows[i] = slices.Delete(rows[i], seconds, seconds+1)
	}
	return rows
}

// TestSweep: a sweep runs all combinations, each as it would run alone, and collects tables of all flows. The same
// command does nothing more; another one is refused.
func TestSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	args := append([]string{"sweep", scenarios + "incast.yaml", "--vary", "transport.profile=rc,irn", "--vary", "workload.0.senders=5,9",
		"--seeds", "1..2", "-o", dir, "--format", "csv"}, small...)
	code, out, diag := rocesim(args...)
	if code != 0 || !strings.Contains(diag, "8 of 8 runs done") || strings.Count(out, "\n") != 5 {
		t.Fatalf("code %d: %s%s", code, out, diag)
	}
	rows := runsOf(t, dir)
	want := []string{"run", "workload.0.rounds", "workload.0.size", "transport.profile", "workload.0.senders", "seed", "messages"}
	if len(rows) != 9 || cmp.Diff(want, rows[0][:7]) != "" || cmp.Diff([]string{"5", "1", "64KB", "irn", "5", "2", "5"}, rows[6][:7]) != "" {
		t.Errorf("%d rows: %v", len(rows), rows)
	}
	flows := table(t, dir, "flows.csv")
	fct := slices.Index(flows[0], "fct_ps")
	if ps, err := strconv.Atoi(flows[1][fct]); err != nil || len(flows) != 1+2*2*(5+9) || flows[len(flows)-1][0] != "7" || ps < 1e6 {
		t.Errorf("%d flows, %v, %v", len(flows)-1, flows[1], err)
	}
	_, alone, _ := rocesim(append([]string{"run", scenarios + "incast.yaml", "--seed", "2", "--json", "-q", "--set", "transport.profile=irn", "--set", "workload.0.senders=5"}, small...)...)
	if b, err := os.ReadFile(filepath.Join(dir, "runs", "0005", "summary.json")); err != nil || string(b) != alone {
		t.Errorf("%v\nin the sweep %s\nalone %s", err, b, alone)
	}
	if code, again, diag := rocesim(args...); code != 0 || again != out {
		t.Errorf("again: code %d: %s%s", code, again, diag)
	}
	if code, _, diag := rocesim(append(args, "--vary", "sample=1us,2us")...); code != exitUsage || !strings.Contains(diag, "another sweep") {
		t.Errorf("another sweep: code %d: %s", code, diag)
	}
	code, out, _ = rocesim("collect", dir, "--json")
	var collected struct {
		Runs []struct {
			Set    map[string]string
			Result struct{ Messages int }
		}
		Missing []int
	}
	if err := json.Unmarshal([]byte(out), &collected); err != nil || code != 0 || len(collected.Runs) != 8 || collected.Runs[6].Result.Messages != 9 || collected.Runs[6].Set["seed"] != "1" {
		t.Errorf("%v, %s", err, out)
	}
}

// killAfter starts a sweep in another process, kills it after some runs are done, and returns those runs.
func killAfter(t *testing.T, some int, dir string, args []string) (done []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, append(slices.Clone(args), "-o", dir)...)
	c.Env = append(os.Environ(), asRocesim+"=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(dir, "runs", "[0-9]*")
	for deadline := time.Now().Add(time.Minute); len(done) < some && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		done, _ = filepath.Glob(runs)
	}
	_ = c.Process.Kill() // the process may have ended
	_ = c.Wait()
	done, _ = filepath.Glob(runs)
	return done
}

// TestKilled: a killed sweep continues after a restart, as after a power failure. It has the same result as an
// uninterrupted one and repeats no finished run.
func TestKilled(t *testing.T) {
	withoutRaces(t)
	dir := t.TempDir()
	args := append([]string{"sweep", scenarios + "incast.yaml", "--vary", "transport.profile=rc,irn,melo,eunomia", "--seeds", "1..5", "--format", "csv", "--parallel", "2"}, small...)
	killed, done := "", []string(nil)
	for try := 0; len(done) < 3 || len(done) == 20; try++ {
		if try == 5 {
			t.Fatalf("%d runs were done when it was killed", len(done))
		}
		killed = filepath.Join(dir, fmt.Sprint("killed-", try))
		done = killAfter(t, 3, killed, args)
	}
	before := map[string]os.FileInfo{}
	for _, d := range done {
		s, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		before[d] = s
	}
	if code, _, diag := rocesim("collect", killed); code != exitFailed || !strings.Contains(diag, "of 20 runs are missing") {
		t.Errorf("collected too early: code %d, %s", code, diag)
	}
	for _, d := range []string{killed, filepath.Join(dir, "whole")} {
		if code, out, diag := rocesim(append(slices.Clone(args), "-o", d)...); code != 0 {
			t.Fatalf("code %d: %s%s", code, out, diag)
		}
	}
	for d, s := range before {
		if now, err := os.Stat(d); err != nil || !os.SameFile(s, now) {
			t.Errorf("%s has been done again: %v", d, err)
		}
	}
	if d := cmp.Diff(runsOf(t, filepath.Join(dir, "whole")), runsOf(t, killed)); d != "" {
		t.Error(d)
	}
	x, err := os.ReadFile(filepath.Join(killed, "flows.csv"))
	y, err2 := os.ReadFile(filepath.Join(dir, "whole", "flows.csv"))
	if err != nil || err2 != nil || string(x) != string(y) || strings.Count(string(x), "\n") != 20*30+1 {
		t.Errorf("%v, %v: the flows are not the same, or not all", err, err2)
	}
	if code, out, diag := rocesim("diff", killed, filepath.Join(dir, "whole")); code != 0 || !strings.HasPrefix(out, "0 numbers differ") {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
}

// TestSweepFailures: invalid combinations are listed and left out; if all are invalid, nothing runs. An error of the folder is not the result
// of a run. An error in a run is its result, and is reported.
func TestSweepFailures(t *testing.T) {
	dir := t.TempDir()
	sweep := func(profiles string) (int, string, string) {
		return rocesim(append([]string{"sweep", scenarios + "incast.yaml", "--vary", "transport.profile=" + profiles, "--seeds", "1..2", "-o", filepath.Join(dir, "a")}, small...)...)
	}
	code, _, diag := sweep("quic,warp")
	if _, err := os.Stat(filepath.Join(dir, "a")); code != exitUsage || !strings.Contains(diag, `transport.profile=quic: `) || err == nil {
		t.Errorf("code %d: %s", code, diag)
	}
	for range 2 { // the second time, the sweep is complete
		if code, _, diag = sweep("rc,warp,irn"); code != 0 || strings.Count(diag, "transport.profile=warp: ") != 1 || !strings.Contains(diag, "4 of 4 runs done") {
			t.Errorf("code %d: %s", code, diag)
		}
	}
	if code, out, diag := rocesim("collect", filepath.Join(dir, "a"), "--json"); code != 0 || !strings.Contains(out, `"refused": [`) || !strings.Contains(diag, "transport.profile=warp: ") {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
	stuck := filepath.Join(dir, "stuck.yaml")
	text := "topology: {kind: pair, host_rate: 1Gbps}\ntransport: {profile: rc}\nworkload: [{kind: flows, file: FILE}]\nevents: [{at: 1us, link: h0-h1, do: fail}]\n"
	write := func(file string) {
		if err := os.WriteFile(stuck, []byte(strings.Replace(text, "FILE", file, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "flows"), []byte("1\n0 1 3 100 10000000 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	write("../" + filepath.Base(dir) + "/flows")
	if code, _, diag := rocesim("sweep", stuck, "-o", filepath.Join(dir, "b")); code != exitUsage || !strings.Contains(diag, "must be beside it") {
		t.Errorf("code %d: %s", code, diag)
	}
	write("flows")
	s := filepath.Join(dir, "c")
	args := []string{"sweep", stuck, "-o", s, "-q", "--vary", "events.0.at=1us,9s"}
	if code, out, diag := rocesim(args...); code != 0 || !strings.Contains(out, "events.0.at") {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
	if err := os.RemoveAll(filepath.Join(s, "runs", "0000")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s, "flows"), filepath.Join(s, "away")); err != nil {
		t.Fatal(err)
	}
	if code, _, diag := rocesim("work", s, "-q"); code != exitFailed || !strings.Contains(diag, "workload.0.file") {
		t.Errorf("a file is not there: code %d: %s", code, diag)
	}
	if err := os.Rename(filepath.Join(s, "away"), filepath.Join(s, "flows")); err != nil {
		t.Fatal(err)
	}
	if code, out, diag := rocesim(args...); code != 0 {
		t.Errorf("the file is there again: code %d: %s%s", code, out, diag)
	}
	note := filepath.Join(s, "runs", "0001", "run.json")
	if err := os.WriteFile(note, []byte(`{"run": 1, "set": {"events.0.at": "9s"}, "error": "3 messages never ended"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out, diag := rocesim("collect", s); code != exitFailed || !strings.Contains(diag, "1 runs failed: 1 (the last: 3 messages never ended)") || !strings.Contains(out, "9s") {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
	if rows := runsOf(t, s); len(rows) != 3 || rows[2][len(rows[2])-1] != "3 messages never ended" {
		t.Errorf("%v", rows)
	}
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	run := append([]string{"run", scenarios + "incast.yaml", "-q"}, small...)
	for name, more := range map[string][]string{"a": nil, "b": {"--set", "workload.0.senders=20"}, "seeds": {"--seeds", "1..2"}} {
		if code, _, diag := rocesim(slices.Concat(run, more, []string{"--out", file(name)})...); code != 0 {
			t.Fatal(diag)
		}
	}
	_, js, _ := rocesim(append(run, "--json")...)
	if err := os.WriteFile(file("a.json"), []byte(js), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{file("a"), file("a")}, 0, "0 numbers differ"},
		{[]string{file("a"), file("a.json"), "--within", "0"}, 0, "0 numbers differ"},
		{[]string{file("a"), file("b")}, 0, "messages "},
		{[]string{file("a"), file("b")}, 0, "-33.3 %"},
		{[]string{file("a"), file("b"), "--only", "slowdown"}, 0, "slowdown.p99.9"},
		{[]string{file("a"), file("b"), "--only", "messages", "--within", "10"}, 1, "differ by more"},
		{[]string{file("a"), file("b"), "--only", "messages", "--within", "40"}, 0, "0 numbers differ, 1 do not"},
		{[]string{file("seeds"), file("seeds")}, 0, "0 numbers differ"},
		{[]string{file("a"), file("seeds")}, 2, "no run in common"},
		{[]string{file("a"), dir}, 2, "neither summary.json"},
		{[]string{file("a"), "none"}, 2, "none"},
		{[]string{file("a"), scenarios + "incast.yaml"}, 2, "incast.yaml"},
		{[]string{file("a")}, 2, "usage"},
		{[]string{file("a"), file("b"), "--within", "NaN"}, 2, "--within NaN: must be a number"},
		{[]string{file("a"), file("b"), "--json", "--only", "messages"}, 0, `"percent": -33.3`},
	} {
		if code, out, diag := rocesim(append([]string{"diff"}, c.args...)...); code != c.code || !strings.Contains(out+diag, c.want) {
			t.Errorf("diff %v: code %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, diag)
		}
	}
}
