package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// python is the interpreter of the distribution's pyverbs. PATH may find another one first.
const python = "/usr/bin/python3"

// modules are the test modules of pyverbs that apply to this device. The others need specific hardware (mlx5, efa, cuda).
var modules = []string{
	"addr", "pd", "cq", "cq_events", "cqex", "device", "qp", "qpex", "mr", "srq", "atomic", "relaxed_ordering", "rdmacm", "shared_pd",
	"odp", "parent_domain", "fork", "flow", "rss_traffic", "tag_matching",
}

// notEmulated lists tests of features of newer kernels, which the library does not emulate, with the reason.
var notEmulated = map[string]string{
	"CMTestCase.test_rdmacm_async_resolve_addrinfo": "rdma_resolve_addrinfo() needs the command WRITE_CM_EVENT of new kernels",
}

// testLimit is the time limit of one test in seconds. After it, Python prints where the test hangs.
const testLimit = "40"

func TestPyverbs(t *testing.T) {
	folder := pyverbsTests(t)
	l := newLab(t, "")
	for _, m := range modules {
		t.Run(m, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(folder, "test_"+m+".py")); errors.Is(err, fs.ErrNotExist) {
				t.Skip("this rdma-core has no such tests")
			}
			for _, r := range runModule(t, l.At(t), folder, m) {
				t.Run(r.name, func(t *testing.T) { record(t, r) })
			}
		})
	}
	l.NoClients()
}

// TestPyverbsOnUDP runs the tests of rdma_cm and multicast on UDP sockets, where the kernel joins the groups.
func TestPyverbsOnUDP(t *testing.T) {
	folder := pyverbsTests(t)
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"udp", "udp"}})
	for _, r := range runModule(t, l, folder, "rdmacm") {
		t.Run(r.name, func(t *testing.T) {
			if r.outcome == skip && (release() == "11" || notEmulated[r.name] != "") {
				t.Skip(r.why) // the tests of Debian 11 need the name of a network interface below the device in sysfs
			}
			if r.outcome != pass {
				t.Errorf("%s: %s", r.outcome, r.why)
			}
		})
	}
	l.NoClients()
}

// pyverbsTests returns the folder with the tests that `make setup` unpacked.
func pyverbsTests(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../../tools/scripts/pyverbs-tests.sh").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no tests of pyverbs: make setup (%v)", err)
	}
	return strings.TrimSpace(string(out))
}

// runModule runs one module in its own process, so that a crash does not affect other modules.
func runModule(t *testing.T, l *lab.Lab, folder, module string) []row {
	t.Helper()
	script, err := filepath.Abs("testdata/modules.py")
	lab.Must(t, err)
	results := filepath.Join(t.TempDir(), "results")
	p := l.Exec(clientHost, python, "-B", script, folder, results, testLimit, l.Host[clientHost].Addr, module, "--",
		"--dev", l.Host[clientHost].Device, "--port", "1", "--gid", gidIPv4)
	ended := p.Wait(5 * lab.Limit)
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatalf("%v: %v", err, ended)
	}
	tests, err := parseResults(string(text))
	lab.Must(t, err)
	if ended != nil || len(tests) == 0 {
		t.Errorf("%d tests, %v", len(tests), ended)
	}
	for i := range tests {
		r := &tests[i]
		r.group = "pyverbs: " + module
		if why := notEmulated[r.name]; why != "" && r.outcome == fail {
			r.outcome, r.why = skip, "not emulated: "+why
		}
	}
	return tests
}

// parseResults reads the output of testdata/modules.py. A test that started but did not end fails. A test with several
// failures is listed once.
func parseResults(text string) (rows []row, err error) {
	index := map[string]int{}
	for line := range strings.Lines(text) {
		var r struct{ Test, Outcome, Why string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("%w in %q", err, line)
		}
		i, ok := index[r.Test]
		if !ok {
			i = len(rows)
			index[r.Test] = i
			rows = append(rows, row{name: shortName(r.Test)})
		}
		switch {
		case r.Outcome == "begin":
			rows[i].outcome, rows[i].why = fail, "does not end"
		case ok && rows[i].outcome == fail && rows[i].why != "does not end":
		default:
			rows[i].outcome, rows[i].why = r.Outcome, r.Why
		}
	}
	return rows, nil
}

// shortName converts "tests.test_module.Class.test" to "Class.test".
func shortName(id string) string {
	if parts := strings.SplitN(id, ".", 3); len(parts) == 3 && parts[0] == "tests" {
		return parts[2]
	}
	return id
}

func TestParseResults(t *testing.T) {
	got, err := parseResults(`{"test": "tests.test_a.A.one", "outcome": "begin"}
{"test": "tests.test_a.A.one", "outcome": "pass"}
{"test": "tests.test_a.A.two", "outcome": "begin"}
{"test": "tests.test_a.A.two", "outcome": "skip", "why": "no device"}
{"test": "tests.test_a.A.three", "outcome": "begin"}
{"test": "tests.test_a.A.three", "outcome": "fail", "why": "1 != 2"}
{"test": "tests.test_a.A.three", "outcome": "pass"}
{"test": "setUpClass (tests.test_a.B)", "outcome": "fail", "why": "no module"}
{"test": "tests.test_a.A.four", "outcome": "begin"}
`)
	lab.Must(t, err)
	want := []row{
		{name: "A.one", outcome: pass}, {name: "A.two", outcome: skip, why: "no device"}, {name: "A.three", outcome: fail, why: "1 != 2"},
		{name: "setUpClass (tests.test_a.B)", outcome: fail, why: "no module"}, {name: "A.four", outcome: fail, why: "does not end"},
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("row %d: got %+v, want %+v", i, got, want)
		}
	}
	if _, err := parseResults("no JSON"); err == nil {
		t.Error("no error")
	}
}
