package test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// kinds are the kinds of objects that the daemon lists.
var kinds = []string{"qp", "mr", "cq", "pd", "srq", "ah"}

// objects counts the objects of a daemon by kind.
func objects(t *testing.T, h *netlab.Host) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit)
	defer cancel()
	n := map[string]int{}
	for _, kind := range kinds {
		var res []api.Resource
		if err := api.NewClient(filepath.Join(h.RunDir, api.Socket)).Get(ctx, &res, "res", kind); err != nil {
			t.Fatal(err)
		}
		n[kind] = len(res)
	}
	return n
}

// hoard starts a program that creates one object of each kind.
func hoard(t *testing.T, l *lab.Lab) *exec.Cmd {
	t.Helper()
	c := verbs(t, l, "hoarder")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the program printed %q, %v", line, err)
	}
	return c
}

// TestKilledProgramLeavesNothing kills programs. Their objects must vanish, those of other programs must stay.
func TestKilledProgramLeavesNothing(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	first, second := hoard(t, l), hoard(t, l)
	for _, left := range []struct {
		program *exec.Cmd
		n       int
	}{{first, 1}, {second, 0}} {
		if err := left.program.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = left.program.Wait() // killed
		want := map[string]int{}
		for _, kind := range kinds {
			want[kind] = left.n
		}
		lab.Eventually(t, lab.Limit, fmt.Sprintf("the daemon has %v", want), func() bool { return maps.Equal(objects(t, l.Host[0]), want) })
	}
}

// TestErrno checks that successful calls do not change errno.
func TestErrno(t *testing.T) { succeed(t, verbs(t, newLab(t), "errno")) }

// TestExplained checks that ROCED_EXPLAIN=1 prints the reason of a failed registration once, and only to the file that was
// standard error when the program started.
func TestExplained(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	for setting, want := range map[string]int{"1": 1, "0": 0, "": 0} {
		other := filepath.Join(t.TempDir(), "other")
		c := verbs(t, l, "explained")
		c.Args = append(c.Args, other)
		c.Env = append(c.Env, "ROCED_EXPLAIN="+setting)
		out, err := c.CombinedOutput()
		if err != nil || bytes.Count(out, []byte("\n")) != want || bytes.Count(out, []byte("is not mapped")) != want {
			t.Errorf("ROCED_EXPLAIN=%q: %v\n%s", setting, err, out)
		}
		if text, err := os.ReadFile(other); err != nil || len(text) > 0 {
			t.Errorf("ROCED_EXPLAIN=%q: the program's file has %q, %v", setting, text, err)
		}
	}
}

// TestNoDaemon checks that the library prints once why it finds no daemon.
func TestNoDaemon(t *testing.T) {
	if _, err := os.Stat("/sys/class/infiniband_verbs"); err == nil {
		t.Skip("the kernel has devices of its own")
	}
	l := newLab(t)
	run, none := l.Host[0].RunDir, t.TempDir()
	tree := filepath.Join(run, "sysfs")
	for _, c := range []struct {
		env  []string
		want string // in the only line of output; no output if empty
	}{
		{nil, "neither ROCED_RUN_DIR nor SYSFS_PATH is set"},
		{[]string{"ROCED_EXPLAIN=0"}, ""},
		{[]string{"ROCED_RUN_DIR=" + run}, "SYSFS_PATH is not set"},
		{[]string{"SYSFS_PATH=" + tree}, "ROCED_RUN_DIR is not set"},
		{[]string{"ROCED_RUN_DIR=" + none, "SYSFS_PATH=" + none}, "there is no NIC in " + none},
		{[]string{"ROCED_RUN_DIR=" + none, "SYSFS_PATH=" + tree}, "no daemon answers at " + none + "/uverbs0"},
		{[]string{"ROCED_RUN_DIR=" + run, "SYSFS_PATH=" + tree}, ""},
	} {
		p := exec.Command(compile(t, "absent", "-libverbs"))
		p.Env = append(append(os.Environ(), "LD_PRELOAD="+filepath.Join(lab.Bin, "libroced.so")), c.env...)
		out, err := p.CombinedOutput()
		if lines := bytes.Count(out, []byte("\n")); err != nil || !bytes.Contains(out, []byte(c.want)) || lines != min(len(c.want), 1) {
			t.Errorf("%v: %v, output %q, want %q", c.env, err, out, c.want)
		}
	}
}
