package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Proc is a running program.
type Proc struct {
	Out, Diag Buffer // standard output and standard error
	t         testing.TB
	cmd       *exec.Cmd
	done      chan struct{}
	err       error // of its exit, valid when done is closed
}

// Buffer is a bytes.Buffer that is safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the contents.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Launch starts a program with start, and kills it at the end of the test.
func Launch(t testing.TB, start func(*exec.Cmd) error, args []string) *Proc {
	t.Helper()
	return LaunchCmd(t, start, exec.Command(args[0], args[1:]...))
}

// LaunchCmd is like Launch for a prepared command. Signals to a command with its own process group go to the group. The
// command does not inherit that nohup(1) ignores SIGHUP.
func LaunchCmd(t testing.TB, start func(*exec.Cmd) error, c *exec.Cmd) *Proc {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // unlike an ignored signal, a caught one is reset by exec
	}
	p := &Proc{t: t, cmd: c, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.Out, &p.Diag
	if err := start(p.cmd); err != nil {
		t.Fatalf("%v: %v", c.Args, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Signal(os.Kill)
		<-p.done
	})
	return p
}

// PID returns the process ID.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. It does nothing if the program has ended.
func (p *Proc) Signal(s os.Signal) {
	if err := p.signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("signal %v to %v: %v", s, p.cmd.Args, err)
	}
}

func (p *Proc) signal(s os.Signal) error {
	if p.cmd.SysProcAttr != nil && p.cmd.SysProcAttr.Setpgid {
		return syscall.Kill(-p.PID(), s.(syscall.Signal))
	}
	return p.cmd.Process.Signal(s)
}

// Kill kills the program, as in a crash.
func (p *Proc) Kill() {
	p.Signal(os.Kill)
	<-p.done
}

// Running reports whether the program has not ended.
func (p *Proc) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit waits until the program ends and returns its exit code.
func (p *Proc) Exit(within time.Duration) int {
	p.t.Helper()
	if err := p.Wait(within); errors.Is(err, errHangs) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

var errHangs = errors.New("hangs")

// Wait waits until the program ends and returns a description of a failure. It kills a program that does not end.
func (p *Proc) Wait(within time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(within):
		state := p.Threads()
		p.Kill()
		return fmt.Errorf("%v %w for %v\n%s\n%s", p.cmd.Args, errHangs, within, state, p.tail())
	}
	if p.err != nil {
		return fmt.Errorf("%v: %w\n%s", p.cmd.Args, p.err, p.tail())
	}
	return nil
}

// Said returns the output of the program.
func (p *Proc) Said() string { return p.Out.String() + p.Diag.String() }

// tail returns the last lines of the output.
func (p *Proc) tail() string {
	const n = 40
	lines := strings.Split(strings.TrimSpace(p.Said()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Fails checks that the program ends with code 1 in time, and that its message contains all words.
func (p *Proc) Fails(within time.Duration, words ...string) {
	p.t.Helper()
	if code := p.Exit(within); code != 1 {
		p.t.Fatalf("%v: exit code %d\n%s", p.cmd.Args, code, p.Said())
	}
	said := p.Diag.String()
	if err := InWords(said); err != nil {
		p.t.Error(err)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			p.t.Errorf("%v does not say %q but:\n%s", p.cmd.Args, w, said)
		}
	}
}

// InWords returns an error for an empty error message and for a stack trace.
func InWords(said string) error {
	if strings.TrimSpace(said) == "" {
		return errors.New("no message")
	}
	for _, bad := range []string{"goroutine ", "panic:", ".go:", "runtime error"} {
		if strings.Contains(said, bad) {
			return fmt.Errorf("a stack trace instead of words:\n%s", said)
		}
	}
	return nil
}

// Ready waits until a program is ready.
func (p *Proc) Ready(what string, ok func() (bool, error)) error {
	for deadline := time.Now().Add(Limit); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ready, err := ok(); ready || err != nil {
			return err
		}
		if !p.Running() {
			return fmt.Errorf("%v has ended before %s: %v\n%s", p.cmd.Args, what, p.err, p.tail())
		}
	}
	return fmt.Errorf("%v: not within %v: %s\n%s", p.cmd.Args, Limit, what, p.Threads())
}

// Listens waits until the program listens on a TCP port of its namespace.
func (p *Proc) Listens(port int) error {
	want := fmt.Sprintf(":%04X 0", port) // the local address is followed by the remote one
	return p.Ready("it listens", func() (bool, error) {
		for _, name := range []string{"tcp", "tcp6"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.PID(), name))
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, want) && strings.Contains(line, " 0A ") {
					return true, nil
				}
			}
		}
		return false, nil
	})
}

// Threads describes the state of the threads of the process and of its children.
func (p *Proc) Threads() string { return threads(p.PID()) }

func threads(pid int) string {
	var out strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, task := range tasks {
		fmt.Fprintf(&out, "thread %s:", filepath.Base(task))
		for _, name := range []string{"comm", "wchan", "syscall", "stack"} {
			text, err := os.ReadFile(filepath.Join(task, name))
			if err == nil {
				fmt.Fprintf(&out, " %s %s", name, strings.TrimSpace(string(text)))
			}
		}
		out.WriteByte('\n')
		children, _ := os.ReadFile(filepath.Join(task, "children"))
		for _, child := range strings.Fields(string(children)) {
			var id int
			fmt.Sscan(child, &id)
			fmt.Fprintf(&out, "child %d\n%s", id, threads(id))
		}
	}
	return out.String()
}
