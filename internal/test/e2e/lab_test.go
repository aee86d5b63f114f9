package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced/internal/cli/perf"
	"roced/internal/daemon/api"
	"roced/internal/observe/decode"
	"roced/tools/testbed"
)

// lab is two daemons and what the tests do with them.
type lab struct {
	*testbed.Lab
	t    testing.TB
	runs int
}

// kinds of links, by name.
var (
	onTAP    = testbed.LabOptions{}
	onFrames = testbed.LabOptions{NoOffload: true}
	onUnix   = testbed.LabOptions{Unix: true}
)

// newLab starts the daemons. A test that needs namespaces runs as root, always;
// others may not be permitted to.
func newLab(t testing.TB, o testbed.LabOptions) *lab {
	t.Helper()
	if !o.Unix && os.Geteuid() != 0 && testbed.Own() == testbed.Unprivileged {
		t.Skip("needs root or a user namespace: this user may not make network namespaces and TAP devices")
	}
	dir, err := os.MkdirTemp("", "e2e")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	o.Bin, o.Dir = bin, dir
	inner, err := testbed.NewLab(o)
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

// checkLogs shows the daemons' logs if the test has failed, and fails it if a
// daemon has crashed.
func (l *lab) checkLogs() {
	for _, h := range l.Host {
		text, err := os.ReadFile(h.LogFile)
		if err != nil {
			l.t.Error(err)
		}
		for _, bad := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if bytes.Contains(text, []byte(bad)) {
				l.t.Errorf("%s has crashed", h.Device)
			}
		}
		if l.t.Failed() {
			l.t.Logf("log of %s:\n%s", h.Device, text)
		}
	}
}

// at returns a lab whose failures are those of another test.
func (l *lab) at(t testing.TB) *lab {
	c := *l
	c.t = t
	return &c
}

// start starts a program beside host i.
func (l *lab) start(i int, args ...string) *proc {
	l.t.Helper()
	start := (*exec.Cmd).Start
	if l.Bed != nil {
		start = l.Bed.NS[i].Start
	}
	return launch(l.t, start, args)
}

// ctl starts rocectl for host i.
func (l *lab) ctl(i int, args ...string) *proc {
	l.t.Helper()
	return l.start(i, append([]string{filepath.Join(bin, "rocectl"), "--run-dir", l.Host[i].RunDir}, args...)...)
}

// run runs rocectl for host i, which has to succeed, and returns what it prints.
func (l *lab) run(i int, args ...string) string {
	l.t.Helper()
	p := l.ctl(i, args...)
	if code := p.exit(limit); code != 0 {
		l.t.Fatalf("rocectl %v: exit code %d\n%s", args, code, &p.diag)
	}
	return p.out.String()
}

// query fills v with what rocectl prints as JSON.
func query[T any](l *lab, i int, args ...string) (v T) {
	l.t.Helper()
	text := l.run(i, append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		l.t.Fatalf("rocectl %v: %v in\n%s", args, err, text)
	}
	return v
}

// link describes the NIC of host i.
func (l *lab) link(i int) api.Link {
	l.t.Helper()
	return query[[]api.Link](l, i, "link", "show")[0]
}

// counters returns the counters of host i.
func (l *lab) counters(i int) map[string]uint64 {
	l.t.Helper()
	return query[[]api.Stat](l, i, "stat")[0].Counters
}

// queuePairs lists the queue pairs of host i that belong to a process.
func (l *lab) queuePairs(i, pid int) []api.Resource {
	l.t.Helper()
	all := query[[]api.Resource](l, i, "res", "show", "qp")
	return slices.DeleteFunc(all, func(r api.Resource) bool { return int(r.PID) != pid })
}

// pair starts both sides of a roceperf run with the same options, the client
// once the server listens.
func (l *lab) pair(args ...string) (server, client *proc) {
	l.t.Helper()
	oob, err := os.MkdirTemp(l.Dir, "o")
	must(l.t, err)
	sock := filepath.Join(oob, "s")
	args = append([]string{filepath.Join(bin, "roceperf")}, append(slices.Clone(args), "--oob", "unix:"+sock)...)
	server = l.start(1, append(slices.Clone(args), "--run-dir", l.Host[1].RunDir)...)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := testbed.WaitFile(ctx, sock); err != nil {
		l.t.Fatalf("roceperf server: %v\n%s", err, &server.diag)
	}
	return server, l.start(0, append(slices.Clone(args), "--run-dir", l.Host[0].RunDir, "--json", "peer")...)
}

// perf runs roceperf between the hosts, which has to succeed.
func (l *lab) perf(args ...string) (r perf.Result) {
	l.t.Helper()
	server, client := l.pair(args...)
	code := client.exit(limit)
	if scode := server.exit(limit); code != 0 || scode != 0 {
		l.t.Fatalf("roceperf %s: exit codes %d and %d\nclient: %s\nserver: %s", strings.Join(args, " "), code, scode,
			&client.diag, &server.diag)
	}
	if err := json.Unmarshal([]byte(client.out.String()), &r); err != nil {
		l.t.Fatalf("roceperf %v: %v in\n%s", args, err, &client.out)
	}
	return r
}

// capture starts a capture on host i; stop ends it and returns its file.
func (l *lab) capture(i int) (stop func() string) {
	l.t.Helper()
	l.runs++
	file := filepath.Join(l.Dir, fmt.Sprintf("capture%d-%d.pcapng", i, l.runs))
	p := l.ctl(i, "capture", l.Host[i].Device, "-w", file)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	must(l.t, testbed.WaitFile(ctx, file))
	return func() string {
		l.t.Helper()
		p.signal(os.Interrupt)
		if code := p.exit(limit); code != 0 {
			l.t.Fatalf("rocectl capture: exit code %d\n%s", code, &p.diag)
		}
		return file
	}
}

// decoded returns the frames of a capture.
func (l *lab) decoded(file string) []decode.Record {
	l.t.Helper()
	return parseRecords(l.t, l.run(0, "decode", file, "--json"))
}

func parseRecords(t testing.TB, text string) (out []decode.Record) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r decode.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}
