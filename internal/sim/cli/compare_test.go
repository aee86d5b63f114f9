package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompare: a comparison has a row for the scenario's own control and each other one, with intervals over the seeds and a
// picture. Ratios are paired by seed. With a folder, the runs stay.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	args := append([]string{"compare", scenarios + "incast.yaml", "--against", "{name: static, window_bytes: 8000},hpcc", "--seeds", "1..2", "--out", filepath.Join(dir, "c"), "--svg", dir}, small...)
	code, out, diag := rocesim(append(args, "--json")...)
	var r struct{ Controls []control }
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || len(r.Controls) != 3 {
		t.Fatalf("code %d, %v: %s%s", code, err, out, diag)
	}
	queue := map[string]float64{}
	for i, c := range r.Controls {
		queue[c.Name] = c.Metrics["peak_queue_bytes"].Mean
		if c.Runs != 2 || c.Ratio.Lo == nil || len(c.BySize) != 1 || c.BySize[0].Hi == nil || (i == 0) != (c.Ratio.Mean == 1) {
			t.Errorf("%+v", c)
		}
	}
	if queue["{name: static, window_bytes: 8000}"] >= queue["hpcc"]/2 {
		t.Errorf("queues: %v", queue)
	}
	code, out, diag = rocesim(args...)
	if code != 0 || !strings.Contains(diag, "6 of 6 runs done") || !strings.Contains(out, "dcqcn (own)") || !strings.Contains(out, "\nup to 100 KB") {
		t.Errorf("code %d: %s%s", code, out, diag)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "compare.svg")); err != nil || !strings.Contains(string(b), "dcqcn (own)") {
		t.Errorf("compare.svg: %v", err)
	}
}

// TestCompareErrors: names, parameters and settings that do not work are errors before the first run.
func TestCompareErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--against is missing"},
		{[]string{"--against", "hpcc", "--seeds", "0"}, "expected seeds"},
		{[]string{"--against", "cubic"}, `no congestion control "cubic"`},
		{[]string{"--against", "{name: hpcc, eta: 2}"}, "eta is 2"},
		{[]string{"--against", "hpcc", "--set", "transport.congestion.g=0.5"}, "write it into the scenario"},
		{[]string{"--against", "nscc,hpcc", "--set", "switch.balance={name: drill}"}, "hpcc compares packets of one path"},
	} {
		if code, _, diag := rocesim(append([]string{"compare", scenarios + "incast.yaml"}, c.args...)...); code != exitUsage || !strings.Contains(diag, c.want) {
			t.Errorf("%s: code %d: %s", c.args, code, diag)
		}
	}
}
