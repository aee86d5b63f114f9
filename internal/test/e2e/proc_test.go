package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// proc is a program under way.
type proc struct {
	t         testing.TB
	name      string
	cmd       *exec.Cmd
	out, diag buffer
	done      chan struct{}
	err       error // of its end, once done is closed
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// launch starts a program by start, and kills it when the test ends before it.
func launch(t testing.TB, start func(*exec.Cmd) error, args []string) *proc {
	t.Helper()
	p := &proc{t: t, name: args[0], cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.diag
	if err := start(p.cmd); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(os.Kill)
		<-p.done
	})
	return p
}

func (p *proc) pid() int { return p.cmd.Process.Pid }

// signal sends a signal to a program that may have ended.
func (p *proc) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v to %s: %v", s, p.name, err)
	}
}

// exit waits until the program ends and returns its exit code.
func (p *proc) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.signal(os.Kill)
		p.t.Fatalf("%s has not ended within %v\n%s%s", p.name, within, &p.out, &p.diag)
		return -1
	}
}

// running reports whether the program has not ended.
func (p *proc) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// fails checks that the program ends with code 1, in time, and says why in words.
func (p *proc) fails(within time.Duration, words ...string) {
	p.t.Helper()
	if code := p.exit(within); code != 1 {
		p.t.Fatalf("%s: exit code %d\n%s%s", p.name, code, &p.out, &p.diag)
	}
	said := p.diag.String()
	if err := inWords(said); err != nil {
		p.t.Error(err)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			p.t.Errorf("%s does not say %q but:\n%s", p.name, w, said)
		}
	}
}

// inWords reports an error message that is none.
func inWords(said string) error {
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
