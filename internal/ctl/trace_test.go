package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrace records a daemon's trace as it is, as CSV and as charts.
func TestTrace(t *testing.T) {
	stored, err := os.ReadFile("../observe/trace/testdata/mp-rdma.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{traces: map[string][]byte{"17": stored, "next": stored, "18": []byte(`{"event":"end"}` + "\n"), "19": stored[:len(stored)/2],
		"20": []byte(`{"event":"start","start":{"nic":"rxe_a","qpn":32,"dest_qpn":17}}` + "\n" + `{"event":"end"}` + "\n")}}
	socket := f.start(t)
	dir := t.TempDir()
	file, table, svg := filepath.Join(dir, "new", "t.json"), filepath.Join(dir, "t.csv"), filepath.Join(dir, "svg")
	for _, c := range []struct {
		line, says string
		code       int
		out        string
	}{
		{"trace rxe_a --qp 17", "", 0, string(stored)},
		{"trace rxe_a --next -w " + file + " --csv " + table + " --svg " + svg, "773 events (0 lost)", 0, ""},
		{"trace rxe_a --qp 20 --csv " + filepath.Join(dir, "receiver"), "0 packets sent: the other end", 0, ""},
		{"trace rxe_a --qp 17 -w /dev/null/x", "not a directory", 1, ""},
		{"trace rxe_a --qp 17 --svg /dev/null", "not a directory", 1, ""},
		{"trace rxe_a --qp 18 -w " + filepath.Join(dir, "none"), "no queue pair has connected", 1, ""},
		{"trace rxe_a --qp 19 --csv " + filepath.Join(dir, "cut"), "line ", 1, ""}, // the trace ends in the middle of a line
	} {
		code, out, diag := ctl(append(strings.Fields(c.line), "--socket", socket)...)
		if code != c.code || out != c.out || !strings.Contains(diag, c.says) || (c.says == "") != (diag == "") {
			t.Errorf("%s: exit code %d, %d bytes, %s", c.line, code, len(out), diag)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(stored) {
		t.Errorf("the file has %d bytes of %d, %v", len(got), len(stored), err)
	}
	if got, err := os.ReadFile(table); err != nil || !strings.HasPrefix(string(got), "t,event,") {
		t.Errorf("%.40s, %v", got, err)
	}
	whole := svg + "/trace-sequence.svg"
	first, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(svg); err != nil {
		t.Fatal(err)
	}
	code, out, diag := ctl("trace", "draw", file, "--svg", svg, "--json")
	if again, err := os.ReadFile(whole); code != 0 || err != nil || string(again) != string(first) || !strings.Contains(out, `"events": 773`) {
		t.Errorf("exit code %d, %v, %s%s", code, err, out, diag)
	}
}
