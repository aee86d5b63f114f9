package programs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"roced/internal/daemon/api"
	"roced/tools/testbed"
)

// limit bounds one program. It is long: a loaded machine is slow, and only a
// program that hangs is waited for so long.
const limit = 60 * time.Second

// The NIC with a program that waits for another one, and that of the other one.
const (
	clientHost = iota
	serverHost
)

// lab is two namespaces with a NIC each.
type lab struct {
	*testbed.Lab
	t testing.TB
}

// newLab starts the daemons. Their configuration says of the NIC what extra does, too. Needs
// what makes namespaces and TAP devices.
func newLab(t *testing.T, extra string) *lab {
	t.Helper()
	if os.Geteuid() != 0 && testbed.Own() == testbed.Unprivileged {
		t.Skip("needs root: this user may not make network namespaces and TAP devices")
	}
	dir, err := os.MkdirTemp("", "programs")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	inner, err := testbed.NewLab(testbed.LabOptions{Bin: bin, Dir: dir, Extra: extra})
	must(t, err)
	l := &lab{Lab: inner, t: t}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
		l.checkLogs()
	})
	return l
}

// at returns a lab whose failures are those of another test.
func (l *lab) at(t testing.TB) *lab {
	c := *l
	c.t = t
	return &c
}

// checkLogs shows the daemons' logs if the test has failed, and fails it if a
// daemon has crashed.
func (l *lab) checkLogs() {
	for _, h := range l.Host {
		text, err := os.ReadFile(h.LogFile)
		if err != nil {
			l.t.Error(err)
		}
		for _, bad := range []string{"panic:", "fatal error:"} {
			if bytes.Contains(text, []byte(bad)) {
				l.t.Errorf("%s has crashed", h.Device)
			}
		}
		if l.t.Failed() {
			l.t.Logf("log of %s:\n%s", h.Device, text)
		}
	}
}

// checkNothingLeft checks that the programs, all of which have ended, have left
// nothing in the daemons.
func (l *lab) checkNothingLeft() {
	l.t.Helper()
	for i := range l.Host {
		var links []api.Link
		var left string
		for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			p := l.start(i, "rocectl", "--run-dir", l.Host[i].RunDir, "link", "show", "--json")
			must(l.t, p.wait(limit))
			must(l.t, json.Unmarshal([]byte(p.out.String()), &links))
			left = ""
			for _, n := range links {
				if n.Clients != 0 {
					left = fmt.Sprintf("%s has %d clients left", n.Name, n.Clients)
				}
			}
			if left == "" {
				break
			}
		}
		if left != "" {
			l.t.Error(left)
		}
	}
}

// start starts a program of ours beside host i.
func (l *lab) start(i int, name string, args ...string) *proc {
	l.t.Helper()
	p := &proc{cmd: exec.Command(filepath.Join(bin, name), args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	must(l.t, l.Bed.NS[i].Start(p.cmd))
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	l.t.Cleanup(p.kill)
	return p
}

// exec starts an RDMA program on the NIC of host i.
func (l *lab) exec(i int, args ...string) *proc {
	l.t.Helper()
	return l.start(i, "rocectl", append([]string{"--run-dir", l.Host[i].RunDir, "exec", "--"}, args...)...)
}

// need skips a test on a machine without a program; `make setup` installs it.
func need(t *testing.T, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	if err != nil && (os.Getenv("CI") == "true" || !errors.Is(err, exec.ErrNotFound)) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%s is not installed: make setup", program)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
