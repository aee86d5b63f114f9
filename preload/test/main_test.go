// Package test tests the preload library. C programs in testdata run with the library like users' programs, with a
// real daemon, a false one or none.
package test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }

// compile compiles a test program.
func compile(t testing.TB, name string, libs ...string) string {
	t.Helper()
	out := filepath.Join(lab.Bin, name)
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", out,
		filepath.Join("testdata", name+".c")}, append(libs, "-ldl")...)
	if text, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc %v: %v\n%s", args, err, text)
	}
	return out
}

// preloaded makes a command with the library in LD_PRELOAD.
func preloaded(t testing.TB, runDir, sysfs, program string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, program, args...)
	c.WaitDelay = time.Second // children of a hanging program may hold its output open
	c.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(lab.Bin, "libroced.so"), "ROCED_RUN_DIR="+runDir, "SYSFS_PATH="+sysfs)
	return c
}

// missing is the exit status of a program that needs a feature which this release of rdma-core lacks (MISSING in
// testdata/check.h).
const missing = 77

// succeed runs a command and fails the test if the command fails.
func succeed(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	if c.ProcessState != nil && c.ProcessState.ExitCode() == missing {
		t.Skip("this release of rdma-core lacks the feature")
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.Path, err, out)
	}
}

func TestLayout(t *testing.T) { compile(t, "layout") }

func TestPassThrough(t *testing.T) {
	sysfs := t.TempDir()
	verbs := filepath.Join(sysfs, "class/infiniband_verbs")
	for name, text := range map[string]string{"abi_version": "6\n", "uverbs0/ibdev": "rxe_t\n", "uverbs0/dev": "231:192\n"} {
		path := filepath.Join(verbs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	succeed(t, preloaded(t, t.TempDir(), sysfs, compile(t, "passthrough"), t.TempDir()))
}

// TestNoEnvironment checks that the library is inactive without its environment variables.
func TestNoEnvironment(t *testing.T) {
	c := exec.Command("sh", "-c", "test ! -e /dev/infiniband/uverbs0 && cat /proc/self/maps")
	c.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(lab.Bin, "libroced.so"))
	out, err := c.Output()
	if err != nil || !strings.Contains(string(out), "libroced.so") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestExports compares the exported symbols with a list: an unintended one would replace a function of the program.
func TestExports(t *testing.T) {
	out, err := exec.Command("nm", "-D", "--defined-only", filepath.Join(lab.Bin, "libroced.so")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/exports.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] != "A" { // type A: names of versions
			name, _, _ := strings.Cut(f[2], "@")
			fmt.Fprintln(&got, name)
		}
	}
	if got.String() != string(want) {
		t.Errorf("exported:\n%s\nwant (testdata/exports.txt):\n%s", &got, want)
	}
}

// newLab starts two daemons that are connected by AF_UNIX datagrams.
func newLab(t testing.TB) *lab.Lab { return lab.New(t, netlab.LabOptions{Unix: true}) }

// verbs makes a command for a program that uses the first host's NIC.
func verbs(t testing.TB, l *lab.Lab, name string, args ...string) *exec.Cmd {
	t.Helper()
	run := l.Host[0].RunDir
	return preloaded(t, run, filepath.Join(run, "sysfs"), compile(t, name, "-libverbs"), args...)
}

func TestEvents(t *testing.T) {
	succeed(t, verbs(t, newLab(t), "events"))
}

// listener returns a copy of a listening socket of a process. It accepts connections also after the end of the process,
// as its other sockets do while it ends.
func listener(t *testing.T, pid int, path string) int {
	t.Helper()
	p, err := unix.PidfdOpen(pid, 0)
	lab.Must(t, err)
	defer unix.Close(p)
	for fd := range 1024 {
		s, err := unix.PidfdGetfd(p, fd, 0)
		if err != nil {
			continue
		}
		name, err := unix.Getsockname(s)
		listens, _ := unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if u, ok := name.(*unix.SockaddrUnix); ok && err == nil && listens == 1 && strings.TrimSuffix(u.Name, ".new") == path {
			return s
		}
		unix.Close(s)
	}
	t.Fatalf("process %d does not listen on %s", pid, path)
	return -1
}

func TestDaemonDies(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	c := verbs(t, l, "death")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "ROCED_EXPLAIN=1")
	var diag strings.Builder
	c.Stderr = &diag
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("the program printed %q, %v", line, err)
	}
	defer unix.Close(listener(t, l.Host[0].PID(), filepath.Join(l.Host[0].RunDir, "netlink")))
	if err := l.Host[0].Stop(os.Kill); err != nil {
		t.Logf("daemon: %v", err) // expected: killed
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &diag)
	}
	if n := strings.Count(diag.String(), "the daemon of run directory "+l.Host[0].RunDir+" has ended"); n != 1 {
		t.Errorf("the library explained the end of the daemon %d times, not once:\n%s", n, &diag)
	}
}
