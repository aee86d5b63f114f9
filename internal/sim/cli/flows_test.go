package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// others are files of another simulator; the switch has the ID 0.
var others = map[string]string{
	"topology.txt": "4 1 3\n0\n0 1 100Gbps 1us 0\n0 2 100Gbps 1us 0\n0 3 100Gbps 1us 0\n",
	"flows.txt":    "2\n1 3 3 200 70000 2.000001000\n2 3 3 5000 2.000002000\n",
	"s.yaml": `name: s
topology: {kind: ns3, file: topology.txt}
switch: {buffer: 1MiB}
transport: {profile: irn}
workload: [{kind: flows, file: flows.txt}]
`,
}

// TestFlows: rocesim runs files of other simulators, writes theirs and compares the flows of both.
func TestFlows(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(file(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range others {
		write(name, text)
	}
	for _, format := range []string{"hpcc", "conweave", "csv"} {
		if code, _, diag := rocesim("run", file("s.yaml"), "-q", "--format", format, "--out", file(format)); code != 0 {
			t.Fatal(diag)
		}
	}
	hpcc, err := os.ReadFile(file("hpcc/fct.txt"))
	if lines := strings.Split(string(hpcc), "\n"); err != nil || len(lines) != 3 ||
		!strings.HasPrefix(lines[0], "0b000201 0b000301 10000 100 5000 2000002000 ") || !strings.HasPrefix(lines[1], "0b000101 0b000301 10000 200 70000 2000001000 ") {
		t.Fatalf("%v\n%s", err, hpcc)
	}
	// Durations of another run: one is twice as long, its start is rounded, and there is another flow.
	write("theirs.txt", "1 3 10000 100 70000 2000001001 20000 10000\n2 3 10000 100 5000 2000002000 6000 3000\n2 1 1 1 7 9 9 9\n")
	write("slower.txt", "1 3 10000 100 70000 2000001000 20000 10000\n2 3 10000 100 5000 2000002000 12000 3000\n")
	write("late.txt", "1 3 10000 100 70000 2000001002 20000 10000\n")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{file("hpcc"), file("conweave"), "--within", "0"}, 0, "0 numbers differ"}, // by numbers
		{[]string{file("hpcc/fct.txt"), file("conweave"), "--within", "0"}, 0, "2 flows in both results"},
		{[]string{file("csv/flows.csv"), file("csv"), "--within", "0"}, 0, "2 flows in both results"},
		{[]string{file("theirs.txt"), file("hpcc")}, 0, "flows only in A: 1, such as 2 to 1, 7 bytes at 9 ns"},
		{[]string{file("theirs.txt"), file("slower.txt")}, 0, "up to 10 KB 1 mean 6.000 12.000 2.000 2.000 4.000 2.000"},
		{[]string{file("theirs.txt"), file("slower.txt"), "--within", "200"}, 1, "differ by more"}, // unmatched
		{[]string{file("slower.txt"), file("slower.txt"), "--within", "0"}, 0, "2 flows in both"},
		{[]string{file("slower.txt"), file("hpcc/fct.txt"), "--within", "1"}, 1, "differ by more"},
		{[]string{file("slower.txt"), file("late.txt")}, 2, "no flow in common: 2 and 1 flows"},
		{[]string{file("theirs.txt"), file("theirs.txt"), "--only", "fct"}, 2, "--only"},
		{[]string{file("theirs.txt"), dir}, 2, "neither fct.txt nor flows.csv"},
		{[]string{file("theirs.txt"), file("csv/ports.csv")}, 2, "ports.csv: line 1: 1 fields"},
		{[]string{file("theirs.txt"), file("flows.txt")}, 2, "flows.txt: line 1: 1 fields instead of src"},
	} {
		if code, out, diag := rocesim(append([]string{"diff"}, c.args...)...); code != c.code || !strings.Contains(strings.Join(strings.Fields(out+diag), " "), c.want) {
			t.Errorf("diff %v: code %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, out, diag)
		}
	}
	_, out, _ := rocesim("diff", file("theirs.txt"), file("slower.txt"), "--json")
	var got compared
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Matched != 2 || len(got.OnlyA) != 1 || len(got.OnlyB) != 0 || len(got.BySize) != 2 ||
		got.BySize[0].FCT["p99"] != (both{6, 12, 2}) || got.BySize[0].Slowdown["mean"] != (both{2, 4, 2}) || got.All.FCT["mean"] != (both{13, 16, 16.0 / 13}) {
		t.Errorf("%v\n%s", err, out)
	}
}
