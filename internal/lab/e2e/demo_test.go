package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// demo builds the demo.
var demo = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", lab.Program("demo"), "roced.io/roced/internal/lab/demo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// TestDemo runs the demo without permission for namespaces, over an AF_UNIX link and over a switch.
func TestDemo(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	lab.Must(t, demo())
	for _, c := range []struct {
		link, says string
		devices    map[string]string // by log
	}{
		{"unix", "AF_UNIX link", map[string]string{"a.log": netlab.Device, "b.log": netlab.Device}}, // UCX's tools need the same name on both
		{"switch", "a switch in the memory", map[string]string{"a.log": "rxe1"}},
	} {
		out := filepath.Join(t.TempDir(), "out")
		code, text, diag := said(t, "demo", "-link", c.link, "-bin", lab.Bin, "-out", out)
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", c.link, code, text, diag)
		}
		for _, want := range []string{c.says, "state ACTIVE", "RC FETCH_ADD         ok", "Throughput:", "Latency:", "sent_pkts"} {
			if !strings.Contains(text, want) {
				t.Errorf("the demo does not say %q:\n%s", want, text)
			}
		}
		if !pathExists(filepath.Join(out, "demo.pcapng")) {
			t.Error("no capture")
		}
		for name, device := range c.devices {
			log, err := os.ReadFile(filepath.Join(out, name))
			lab.Must(t, err)
			if !strings.Contains(string(log), "nic="+device+" ") {
				t.Errorf("the device is not %s in %s:\n%s", device, name, log)
			}
		}
		code, text, diag = said(t, "rocectl", "decode", filepath.Join(out, "demo.pcapng"), "--json")
		if code != 0 || text == "" {
			t.Errorf("decode: exit code %d\n%s", code, diag)
		}
		if strings.Contains(text, `"icrc":"bad"`) {
			t.Error("the capture has bad frames")
		}
	}
}

// TestDemoOfAnOrdinaryUser runs the demo confined as in a container without any right and without user namespaces. It
// uses UDP sockets, and states the requirements of TAPs.
func TestDemoOfAnOrdinaryUser(t *testing.T) {
	lab.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make the network and then to become an ordinary user")
	}
	lab.Must(t, demo())
	bed, err := netlab.NewDirect([2]bool{true, true})
	lab.Must(t, err)
	defer bed.Close()
	dir := lab.Dir(t)
	lab.Must(t, os.Chmod(dir, 0o755))
	lab.Must(t, copyPrograms(dir, "roced", "roceperf", "rocectl", "demo"))
	own := filepath.Join(dir, "own")
	lab.Must(t, os.Mkdir(own, 0o755))
	lab.Must(t, os.Chown(own, nobody, nobody))
	start := func(more ...string) *lab.Proc {
		c := confined(append([]string{filepath.Join(dir, "demo"), "-bin", dir, "-out", filepath.Join(own, "out")}, more...)...)
		c.Env = append(c.Env, "TMPDIR="+own)
		return lab.LaunchCmd(t, bed.NS[0].Start, c)
	}
	start("-link", "tap").Fails(lab.Limit, "root", "unprivileged_userns_clone", "/dev/net/tun")
	p := start()
	lab.Must(t, p.Wait(2*lab.Limit))
	for _, want := range []string{"may not make network namespaces", "takes no privilege", "state ACTIVE", "port udp", "RC FETCH_ADD         ok", "Latency:"} {
		if !strings.Contains(p.Said(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, p.Said())
		}
	}
}

// TestInterruptedDemo ends the demo in the middle: a reader of its output exits (make demo | head), or a signal
// arrives. Its daemons and its capture end with it. It deletes its files if it can.
func TestInterruptedDemo(t *testing.T) {
	lab.Long(t)
	lab.Must(t, demo())
	for _, c := range []struct {
		name   string
		end    func(p *lab.Proc, out *os.File)
		orphan bool // its files remain
	}{
		{name: "reader", end: func(_ *lab.Proc, out *os.File) { out.Close() }},
		{name: "SIGTERM", end: func(p *lab.Proc, _ *os.File) { p.Signal(syscall.SIGTERM) }},
		{name: "SIGKILL", end: func(p *lab.Proc, _ *os.File) { p.Kill() }, orphan: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := lab.Dir(t)
			defer func() {
				for _, pid := range processesIn(t, dir) { // if the test has failed
					syscall.Kill(pid, syscall.SIGKILL)
				}
			}()
			read, write, err := os.Pipe()
			lab.Must(t, err)
			defer read.Close()
			p := lab.Launch(t, func(p *exec.Cmd) error {
				p.Env, p.Stdout = append(os.Environ(), "TMPDIR="+dir), write
				return errors.Join(p.Start(), write.Close())
			}, []string{lab.Program("demo"), "-link", "unix", "-bin", lab.Bin, "-out", filepath.Join(t.TempDir(), "out")})
			for lines := bufio.NewScanner(read); !strings.Contains(lines.Text(), "RC WRITE"); {
				if !lines.Scan() {
					t.Fatalf("it ends early: %v\n%s", lines.Err(), &p.Diag)
				}
			}
			if n := len(processesIn(t, dir)); n < 4 { // itself, two daemons, a capture
				t.Fatalf("%d processes", n)
			}
			c.end(p, read)
			if code := p.Exit(lab.Limit); code == 0 {
				t.Error("exit code 0")
			}
			lab.Eventually(t, lab.Limit, "an end of all processes", func() bool { return len(processesIn(t, dir)) == 0 })
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 && !c.orphan {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// processesIn lists the processes that use a folder for temporary files.
func processesIn(t *testing.T, dir string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	lab.Must(t, err)
	for _, file := range all {
		text, _ := os.ReadFile(file) // empty if the process has ended
		if slices.Contains(strings.Split(string(text), "\x00"), "TMPDIR="+dir) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			lab.Must(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
