package ci

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// With pristine, the machine exists only for this test, as tools/scripts/pristine makes one. Steps then run as on a
// runner: they install packages. Otherwise the packages are present, and a namespace separates the programs' ports from
// those of other programs.
var pristine = flag.Bool("pristine", false, "run steps on this machine, which has nothing installed and nothing to lose")

func TestMain(m *testing.M) {
	flag.Parse()
	if *pristine {
		os.Exit(m.Run())
	}
	lab.Main(m, nil)
}

// machine returns the function that starts the programs of steps.
func machine(t *testing.T) func(*exec.Cmd) error {
	t.Helper()
	if *pristine {
		return (*exec.Cmd).Start
	}
	for _, program := range []string{"ib_write_bw", "ibv_devinfo", "ucx_perftest", "ss"} {
		lab.Need(t, program)
	}
	bed, err := netlab.New()
	if err != nil && os.Geteuid() != 0 {
		t.Skip("needs root, or a user namespace")
	}
	lab.Must(t, err)
	t.Cleanup(func() { bed.Close() })
	return bed.NS[0].Start
}

// TestWorkflow runs the jobs of the example, with the action, unmodified.
func TestWorkflow(t *testing.T) {
	lab.Long(t)
	var w struct {
		Jobs map[string]struct{ Steps []step }
	}
	text, err := os.ReadFile("../../../.github/workflows/example.yml")
	lab.Must(t, err)
	lab.Must(t, yaml.Unmarshal(text, &w))
	if len(w.Jobs) != 2 {
		t.Fatalf("%d jobs", len(w.Jobs))
	}
	for name, described := range w.Jobs {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, machine(t))
			if !j.steps(described.Steps, &scope{}) {
				t.Error("it fails")
			}
			if !slices.ContainsFunc(j.used, func(u string) bool { return strings.HasPrefix(u, "actions/setup-go@") }) || len(j.uploads) != 0 {
				t.Errorf("used %v, uploaded %v", j.used, j.uploads)
			}
			if preload := j.env["LD_PRELOAD"]; (preload != "") != (name == "steps") {
				t.Errorf("LD_PRELOAD=%q for the following steps", preload)
			}
			// The last step's processes normally end with the machine. Here the test ends them.
			j.uses("./deploy/ci/collect", nil)
			j.gone()
		})
	}
}

// TestUnixPair: the NICs are on AF_UNIX sockets if the job says so.
func TestUnixPair(t *testing.T) {
	lab.Long(t)
	j := newJob(t, machine(t))
	if !j.uses("./", map[string]string{"nics": "unix", "run": "rocectl link show | grep unix; ibv_devinfo -d rxe_a | grep PORT_ACTIVE"}) {
		t.Error("it fails")
	}
	j.gone()
}

// TestFailure: after failed commands or steps, log, state and captures are present, and no process remains.
func TestFailure(t *testing.T) {
	lab.Long(t)
	start := machine(t)
	t.Run("commands", func(t *testing.T) {
		j := newJob(t, start)
		if j.uses("./", map[string]string{"run": "ibv_devinfo; false; echo not reached", "artifact": "mine"}) {
			t.Error("commands that fail do not fail")
		}
		j.collected("mine")
	})
	t.Run("no traffic", func(t *testing.T) {
		j := newJob(t, start)
		if j.uses("./", map[string]string{"run": "ibv_devinfo", "require-traffic": "1m", "artifact": "mine"}) {
			t.Error("commands without traffic do not fail")
		}
		j.collected("mine")
	})
	t.Run("steps", func(t *testing.T) {
		j := newJob(t, start)
		if j.steps([]step{{Uses: "./"}, {Name: "fails", Run: "ibv_devinfo -d nothing"}, {If: "failure()", Uses: "./deploy/ci/collect"}}, &scope{}) {
			t.Error("a step that fails does not fail")
		}
		j.collected("roced")
	})
	t.Run("no NIC", func(t *testing.T) {
		j := newJob(t, start)
		if j.uses("./", map[string]string{"nics": "nothing0"}) {
			t.Error("no such interface, and no error")
		}
		text, err := os.ReadFile(filepath.Join(j.uploads["roced"], "roced.log"))
		if err != nil || !strings.Contains(string(text), "nothing0: no such interface") {
			t.Errorf("%v\n%s", err, text)
		}
		j.gone()
	})
}

// collected checks the uploaded files.
func (j *job) collected(name string) {
	j.t.Helper()
	for file, want := range map[string]string{"roced.log": "roced has ended", "link.txt": "rxe_b/1: state ACTIVE", "stat.txt": "rxe_a", "rxe_a.pcapng": "\x0a\x0d\x0d\x0a"} {
		text, err := os.ReadFile(filepath.Join(j.uploads[name], file))
		if err != nil || !strings.Contains(string(text), want) {
			j.t.Errorf("%s of %v: %v\n%s", file, j.uploads, err, text)
		}
	}
	j.gone()
}

// gone checks that no daemon of the job runs, and that its run directory is gone.
func (j *job) gone() {
	j.t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/exe")
	lab.Must(j.t, err)
	for _, p := range procs {
		if exe, err := os.Readlink(p); err == nil && strings.HasPrefix(exe, j.temp) {
			j.t.Errorf("%s is %s", p, exe)
		}
	}
	if dir := j.env["ROCED_RUN_DIR"]; dir != "" {
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			j.t.Errorf("%s is there", dir)
		}
	}
}
