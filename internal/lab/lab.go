// Package lab has fixtures for tests that run the daemon and programs: two hosts with a NIC each (New), a daemon in the
// process of the test (Within), and programs (Proc).
package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab/netlab"
)

// Limit is the timeout of all waits of a test. It is long because a loaded machine is slow; only a failing test waits for
// so long.
const Limit = 60 * time.Second

// Bin is the folder of the programs and the preload library during Main. It belongs to the test: tests add programs to it.
var Bin string

// BinEnv names a folder of programs that are built already. `make test` sets it, and tests of a user who cannot build.
const BinEnv = "ROCED_TEST_BIN"

// Main provides the programs and runs the tests of a package. TestMain calls it. then, if not nil, runs last.
func Main(m *testing.M, then func() error) {
	code, err := runTests(m, then)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// LongMain is like Main for a package that `go test -short` leaves out.
func LongMain(m *testing.M, then func() error) {
	flag.Parse()
	if testing.Short() {
		fmt.Println(long)
		os.Exit(0)
	}
	Main(m, then)
}

const long = "left out by -short: make check runs it"

// Long skips a test that `go test -short` leaves out.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(long)
	}
}

func runTests(m *testing.M, then func() error) (int, error) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	Bin = filepath.Join(dir, "bin")
	if err := Programs(Bin); err != nil {
		return 1, err
	}
	code := m.Run()
	if then != nil {
		return code, then()
	}
	return code, nil
}

// Programs copies the programs and the preload library into a new folder. It builds the outdated ones first, unless BinEnv
// names a folder.
func Programs(dir string) error {
	c := exec.Command("cp", "-a", os.Getenv(BinEnv), dir)
	if os.Getenv(BinEnv) == "" {
		mod, err := exec.Command("go", "env", "GOMOD").Output()
		if err != nil {
			return fmt.Errorf("go env GOMOD: %w", err)
		}
		c = exec.Command(filepath.Join(filepath.Dir(string(mod)), "tools/scripts/test-programs"), dir)
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", c.Args, err, out)
	}
	return nil
}

// Lab is two daemons with the operations of tests on them.
type Lab struct {
	*netlab.Lab
	T testing.TB
}

// New starts the daemons. It skips the test if the user is not root and is not allowed to make namespaces.
func New(t testing.TB, o netlab.LabOptions) *Lab {
	t.Helper()
	if !o.Unix && !o.Loopback && os.Geteuid() != 0 && netlab.Own() == netlab.Unprivileged {
		t.Skip("needs root or a user namespace: this user is not allowed to make network namespaces and TAP devices")
	}
	o.Bin, o.Dir = Bin, Dir(t)
	inner, err := netlab.NewLab(o)
	Must(t, err)
	l := &Lab{Lab: inner, T: t}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
		l.checkLogs()
	})
	return l
}

// Dir makes a folder for a test. Its path is short enough for sockets.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// checkLogs fails the test if a daemon has crashed, and shows the logs of the daemons if the test has failed.
func (l *Lab) checkLogs() {
	for _, h := range l.Host {
		text, err := os.ReadFile(h.LogFile)
		if err != nil {
			l.T.Error(err)
		}
		for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if bytes.Contains(text, []byte(bad)) {
				l.T.Errorf("daemon %s has crashed", h.RunDir)
			}
		}
		if l.T.Failed() {
			l.T.Logf("log of %s:\n%s", h.RunDir, text)
		}
	}
}

// At returns the lab for another test, such as a subtest.
func (l *Lab) At(t testing.TB) *Lab { return &Lab{Lab: l.Lab, T: t} }

// Start starts a program on host i.
func (l *Lab) Start(i int, args ...string) *Proc {
	l.T.Helper()
	return Launch(l.T, l.NS(i).Start, args)
}

// Ctl starts rocectl for host i.
func (l *Lab) Ctl(i int, args ...string) *Proc {
	l.T.Helper()
	return l.Start(i, append([]string{Program("rocectl"), "--run-dir", l.Host[i].RunDir}, args...)...)
}

// Exec starts an RDMA program on the NIC of host i.
func (l *Lab) Exec(i int, args ...string) *Proc {
	l.T.Helper()
	return l.Ctl(i, append([]string{"exec", "--"}, args...)...)
}

// Output runs a program on host i and returns its output. The program must succeed.
func (l *Lab) Output(i int, args ...string) string {
	l.T.Helper()
	p := l.Start(i, args...)
	if err := p.Wait(Limit); err != nil {
		l.T.Fatal(err)
	}
	return p.Out.String()
}

// Run runs rocectl for host i and returns its output. rocectl must succeed.
func (l *Lab) Run(i int, args ...string) string {
	l.T.Helper()
	return l.Output(i, append([]string{Program("rocectl"), "--run-dir", l.Host[i].RunDir}, args...)...)
}

// Query runs rocectl with JSON output and returns the decoded output.
func Query[T any](l *Lab, i int, args ...string) (v T) {
	l.T.Helper()
	text := l.Run(i, append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		l.T.Fatalf("rocectl %v: %v in\n%s", args, err, text)
	}
	return v
}

// Link returns the description of the NIC of host i.
func (l *Lab) Link(i int) api.Link {
	l.T.Helper()
	all := Query[[]api.Link](l, i, "link", "show")
	return all[slices.IndexFunc(all, func(n api.Link) bool { return n.Name == l.Host[i].Device })]
}

// NoClients checks that the daemons have no clients after all programs have ended.
func (l *Lab) NoClients() {
	l.T.Helper()
	for i := range l.Host {
		Eventually(l.T, Limit, "a daemon without clients", func() bool {
			all := Query[[]api.Link](l, i, "link", "show")
			return !slices.ContainsFunc(all, func(n api.Link) bool { return n.Clients != 0 })
		})
	}
}

// Program returns the path of a program in Bin.
func Program(name string) string { return filepath.Join(Bin, name) }

// Need skips a test if a program is not installed. `make setup` installs it.
func Need(t testing.TB, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	if err != nil && (os.Getenv("CI") == "true" || !errors.Is(err, exec.ErrNotFound)) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%s is not installed: make setup", program)
	}
}

// Must fails a test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually polls until ok returns true.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
