package programs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// proc is a program under way.
type proc struct {
	cmd  *exec.Cmd
	out  buffer
	done chan struct{}
	err  error // of its end, once done is closed
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

// kill ends a program that may have ended.
func (p *proc) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// wait waits until the program ends. One that does not is described and killed.
func (p *proc) wait(within time.Duration) error {
	select {
	case <-p.done:
		return p.end()
	case <-time.After(within):
		state := threads(p.cmd.Process.Pid)
		p.kill()
		return fmt.Errorf("%v hangs\n%s\n%s", p.cmd.Args, state, tail(p.out.String(), 40))
	}
}

// end describes the end of a program that has failed.
func (p *proc) end() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w\n%s", p.cmd.Args, p.err, tail(p.out.String(), 40))
}

// threads says what the threads of a process and of its children wait for.
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

// listens waits until a program listens on a TCP port of its namespace.
func (p *proc) listens(port int) error {
	want := fmt.Sprintf(":%04X 0", port) // the local address is followed by the remote one
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		for _, name := range []string{"tcp", "tcp6"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.cmd.Process.Pid, name))
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, want) && strings.Contains(line, " 0A ") {
					return nil
				}
			}
		}
		if p.hasEnded() {
			return fmt.Errorf("ended without listening: %w", errors.Join(p.end(), errors.New(p.out.String())))
		}
	}
	return fmt.Errorf("does not listen\n%s", threads(p.cmd.Process.Pid))
}

func (p *proc) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
