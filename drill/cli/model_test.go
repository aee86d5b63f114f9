package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/model"
)

// TestModel: the report of random sequences in both forms, and wrong command lines.
func TestModel(t *testing.T) {
	code, out, diag := call("model", "--steps", "100", "--seed", "3", "--keep", t.TempDir())
	if code != 0 || !strings.HasPrefix(out, "100 steps in ") || !strings.Contains(out, " 0 rules failed\n") {
		t.Error(code, out, diag)
	}
	var r model.Report
	code, out, diag = call("model", "--steps", "100", "--seed", "3", "--json")
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Seed != 3 || r.Steps != 100 || r.Checks["request"] == 0 {
		t.Error(code, err, out, diag)
	}
	known := filepath.Join(t.TempDir(), "known")
	if err := os.WriteFile(known, []byte("# rules\ngapp: a reason\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		diag string
		args []string
	}{
		{"usage: rocedrill model", []string{"model", "x"}},
		{"usage: rocedrill model", []string{"model", "--failures", "0"}},
		{"usage: rocedrill model", []string{"model", "--minutes", "-1"}},
		{"usage: rocedrill model", []string{"model", "--minutes", "NaN", "--steps", "1"}},
		{"usage: rocedrill model", []string{"model", "--minutes", "Inf", "--steps", "1"}},
		{"--keep nowhere: must be a folder", []string{"model", "--keep", "nowhere"}},
		{"there is no gapp among the rules; did you mean \"gap\"?", []string{"model", "--known", known}},
		{"--dut x: must be", []string{"model", "--dut", "x"}},
	} {
		if code, _, diag := call(c.args...); code != exitUsage || !strings.Contains(diag, c.diag) {
			t.Errorf("%v: %d %s", c.args, code, diag)
		}
	}
}

// TestModelFailure: the report names the rule and the script that was kept.
func TestModelFailure(t *testing.T) {
	dir := t.TempDir()
	r := &model.Report{Steps: 7, Sequences: 2, Failures: []model.Failure{{Rule: "gap", Spec: "IBTA 9.7.5.1", Seed: 9, Reason: "no NAK", Script: "text"},
		{Rule: "read.rest", Spec: "Shanley 17", Policy: true, Seed: 8, Reason: "all of it", Reproduced: true},
		{Rule: "ack", Spec: "IBTA 9.7.5.1.2", Seed: 7, Reason: "no ACK", Known: "it never answers"}}}
	var out strings.Builder
	a := app{out: &out}
	a.keepFailures(r, dir)
	file := filepath.Join(dir, "model-9.drill")
	if err := a.printModel(r, time.Minute); err != nil {
		t.Fatal(err)
	}
	want := "failed         gap (IBTA 9.7.5.1): no NAK\n               " + file + "; it passes when it is repeated\n" +
		"differs        read.rest (Shanley 17): all of it\n               " + filepath.Join(dir, "model-8.drill") + "\n" +
		"known          ack (IBTA 9.7.5.1.2): no ACK\n               known: it never answers\n" +
		"7 steps in 2 sequences in 1m0s, 0 not applicable, 0 inconclusive, 1 rules failed\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "text" {
		t.Error(string(b), err)
	}

	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "model-9.drill"), 0o700); err != nil {
		t.Fatal(err)
	}
	var diag strings.Builder
	a.diag = &diag
	a.keepFailures(r, dir)
	if want := filepath.Join(dir, "model-8.drill"); r.Failures[0].File != "" || r.Failures[1].File != want || strings.Count(diag.String(), "\n") != 1 ||
		!strings.Contains(diag.String(), "rocedrill: the script of gap is not kept: open "+filepath.Join(dir, "model-9.drill")+": is a directory") {
		t.Errorf("%+v %s", r.Failures, diag.String())
	} else if _, err := os.Stat(want); err != nil {
		t.Error(err)
	}
}
