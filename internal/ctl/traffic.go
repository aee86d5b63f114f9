package ctl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/environment"
)

// exitNoTraffic is the exit code of exec if the program has succeeded with less payload than --require-traffic.
const exitNoTraffic = 3

// exitSignal is added to the number of the signal that has ended a program, as shells do.
const exitSignal = 128

// demand is what the user wants to know about the traffic of a program.
type demand struct {
	require int64 // bytes of payload; 0: no requirement
	summary bool
}

// trafficSummary is the JSON output of exec --summary.
type trafficSummary struct {
	Processes []*api.Report `json:"processes"`
	Payload   uint64        `json:"payload"` // bytes
	Live      int           `json:"live"`    // contexts that have not ended, and are not included
}

// runCounted runs a program, waits for it, and reports or checks its traffic.
func (a *app) runCounted(path string, args, env []string, d demand) error {
	acct, err := newAccount()
	if err != nil {
		return err
	}
	runErr := wait(path, args, dedup(append(env, environment.Report+"="+acct.socket())))
	if err := acct.close(); err != nil {
		fmt.Fprintln(a.diag, "rocectl: reports of traffic:", err)
	}
	s := summarize(acct)
	if d.summary {
		if err := a.printSummary(s); err != nil {
			return err
		}
	}
	if s.Payload < uint64(d.require) {
		short := fmt.Errorf("%s moved %d bytes of payload over the NICs of %s, less than the required %d%s",
			args[0], s.Payload, a.runDir, d.require, hint(s))
		if runErr == nil {
			return exitError{short, exitNoTraffic}
		}
		fmt.Fprintln(a.diag, "rocectl:", short)
	}
	return runErr
}

// hint adds a likely reason for missing traffic.
func hint(s *trafficSummary) string {
	switch {
	case s.Live > 0:
		return fmt.Sprintf("; %d of its contexts are still open", s.Live)
	case len(s.Processes) == 0:
		return ": no process created a queue pair"
	}
	return ""
}

// summarize sorts the reports. The payload of a message within the program counts once, although both ends report it.
func summarize(acct *account) *trafficSummary {
	s := &trafficSummary{Processes: acct.reports, Live: acct.live}
	slices.SortFunc(s.Processes, func(a, b *api.Report) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Device, b.Device))
	})
	var requested, served uint64
	for _, r := range s.Processes {
		requested += api.Bytes(r.Requested)
		served += api.Bytes(r.Served)
	}
	s.Payload = max(requested, served)
	return s
}

// printSummary prints to the diagnostic stream, because the program owns the standard output.
func (a *app) printSummary(s *trafficSummary) error {
	if a.json {
		e := json.NewEncoder(a.diag)
		return e.Encode(s)
	}
	w := tabwriter.NewWriter(a.diag, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PROGRAM\tPID\tDEVICE\tQPS\tREQUESTED\tSERVED\tMEMORY")
	for _, r := range s.Processes {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", output.Line(r.Program), r.PID, r.Device, counts(r.QPs), works(r.Requested), works(r.Served), regions(r.Regions))
	}
	fmt.Fprintf(w, "payload: %d bytes", s.Payload)
	if s.Live > 0 {
		fmt.Fprintf(w, "; %d contexts are still open and not included", s.Live)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

func works(m map[string]api.Work) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s (%d bytes)", m[k].Messages, k, m[k].Bytes))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

func regions(m map[string]api.Regions) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s (%d bytes)", m[k].Count, k, m[k].Bytes))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// wait runs a program to its end. Its exit code becomes that of rocectl.
func wait(path string, args, env []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	c := &exec.Cmd{Path: path, Args: args, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := c.Start(); err != nil {
		return exitError{err, exitNotExecutable}
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != unix.SIGINT || !interactive() { // a terminal interrupts the program as well
				_ = c.Process.Signal(s)
			}
		case <-done:
			return exitOf(c.ProcessState)
		}
	}
}

// interactive reports whether the process has a controlling terminal.
func interactive() bool {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// exitOf returns nil for success, and otherwise an error without text that carries the exit code.
func exitOf(st *os.ProcessState) error {
	ws := st.Sys().(syscall.WaitStatus)
	switch {
	case ws.Signaled():
		return exitError{fmt.Errorf("the program was ended by signal %d (%s)", ws.Signal(), ws.Signal()), exitSignal + int(ws.Signal())}
	case ws.ExitStatus() != 0:
		return exitError{errSilent, ws.ExitStatus()}
	}
	return nil
}

// errSilent is the error of a program that has explained its failure itself.
var errSilent = errors.New("")
