package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ns3Table runs the script that compares rocesim with a table of ns-3.
func ns3Table(t *testing.T, flows, table string, args ...string) (string, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const root = "../../.."
	c := exec.Command(python, append([]string{root + "/tools/scripts/ns3-table.py", root + "/configs/sim/ns3-conweave.yaml", flows, table,
		"--rocesim", program}, args...)...)
	c.Env = append(os.Environ(), asRocesim+"=1")
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestNS3Table: the script compares each value of a table with the same flows in rocesim, without those that start too early.
func TestNS3Table(t *testing.T) {
	withoutRaces(t)
	out, err := ns3Table(t, "testdata/ns3/flows.txt", "testdata/ns3/table.md", "--seeds", "1..2")
	if err != nil {
		t.Fatal(err, out)
	}
	for _, want := range []string{
		"\n| ecmp PFC 50 | all | mean | 1 | 1.00 (1.00 to 1.00) | 1.00 |\n",
		"\n| ecmp PFC 50 | small | p50 | 1 | 1.00 (1.00 to 1.00) | 1.00 |\n",
		"\n| conweave IRN 50 | large | p50 | 1.1 | 1.00 (1.00 to 1.00) | 0.91 |\n",
		"\n| conweave IRN 50 | large | p99 | 1.2 | 1.00 (1.00 to 1.00) | 0.83 * |\n",
		"Counted flows: 3 small, 4 large. Seeds: 2.", "by seed: ecmp PFC 50: 0, 0; conweave IRN 50: 0, 0.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// TestNS3TableErrors: files of another form are refused, with the place and what is wanted.
func TestNS3TableErrors(t *testing.T) {
	const head = "| load balancing, mode | all | small | large |\n|---|---|---|---|\n"
	const row = "| ecmp PFC 50 | 1/2 | 1/1/2 | 1/1/2 |\n"
	const flows = "1\n0 1 3 1000 2.1\n"
	for _, c := range []struct{ flows, table, want string }{
		{flows, "no table", "0 tables with the head | load balancing, mode | all"},
		{flows, head + row + "\n" + head + row, "2 tables with the head"},
		{flows, "| load balancing, mode | all | small | large |\n" + row, "table.md:2: want a line | --- |"},
		{flows, head, "the table has no rows"},
		{flows, head + "| ecmp PFC 50 | 1/2 | 1/1/2 |\n", "table.md:3: 3 cells, want 4"},
		{flows, head + strings.Replace(row, "ecmp", "conga", 1), `row 'conga PFC 50': want one of ecmp, drill, letflow, conweave`},
		{flows, head + strings.Replace(row, "PFC", "pfc", 1), "then PFC or IRN"},
		{flows, head + strings.Replace(row, "1/2", "1/1/2", 1), "table.md:3: all '1/1/2': want mean/p99"},
		{flows, head + strings.Replace(row, "1/2", "0.5/2", 1), "slowdowns from 1 on"},
		{flows, head + row + row, "row 'ecmp PFC 50' twice"},
		{flows, head + row + strings.Replace(row, "50", "80", 1), "rows of 50, 80 % load; choose those of the flow list by --load"},
		{"", head + row, "flows.txt:1: want the number of flows"},
		{"2\n0 1 3 1000 2.1\n", head + row, "1 flows, but the first line says 2"},
		{"1\n0 1 3 100 1000 2.1\n", head + row, "flows.txt:2: '0 1 3 100 1000 2.1': want src dst priority bytes start_s"},
		{"1\n0 1 3 0 2.1\n", head + row, "want src dst priority bytes start_s"},
		{"1\n0 128 3 1000 2.1\n", head + row, "ecmp PFC 50, seed 1: "},
		{flows, head + row, "no large flow that starts after 2.001 s has finished"},
	} {
		dir := t.TempDir()
		f, table := filepath.Join(dir, "flows.txt"), filepath.Join(dir, "table.md")
		for name, text := range map[string]string{f: c.flows, table: c.table} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := ns3Table(t, f, table, "--seeds", "1"); err == nil || !strings.Contains(out, c.want) || strings.Contains(out, "Traceback") {
			t.Errorf("%q, %q: %v\n%s\nwant %s", c.flows, c.table, err, out, c.want)
		}
	}
}
