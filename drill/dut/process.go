package dut

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// agentProgram is the agent in C, which make builds where libibverbs is installed. managerAgent also drives rdma_cm; make
// builds it where librdmacm is installed too.
const (
	agentProgram = "rocedrill-agent"
	managerAgent = agentProgram + "-cm"
)

// agentIn returns the agent in a folder: with rdma_cm, if it is there.
func agentIn(bin string) string {
	program := filepath.Join(bin, managerAgent)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	return filepath.Join(bin, agentProgram)
}

// programs returns the folder of this program, which has to have the others too.
func programs(names ...string) (bin string, err error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	bin = filepath.Dir(own)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("%w; make build makes it (the agent needs libibverbs-dev and a C compiler)", err)
		}
	}
	return bin, nil
}

// process is an agent with its standard input and output.
type process struct {
	cmd   *exec.Cmd
	ended <-chan struct{}
	io.WriteCloser
	out *os.File
}

// Read reads the agent's output. At its end the error has the exit status.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err == io.EOF {
		select {
		case <-p.ended:
			err = fmt.Errorf("%v of %q", p.cmd.ProcessState, strings.Join(p.cmd.Args, " "))
		case <-time.After(exitLimit):
		}
	}
	return n, err
}

// exitLimit is the time between the end of an agent's output and its exit.
const exitLimit = 500 * time.Millisecond

// command returns a command that runs in a process group of its own. The end of ctx kills the group.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	return c
}

// startProcess starts a program that is the agent. The end of ctx kills it.
func startProcess(ctx context.Context, program string, args ...string) (*process, error) {
	p := &process{cmd: command(ctx, program, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.WriteCloser, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// A pipe of our own: that of StdoutPipe is closed as soon as the process has ended, with its last words unread.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.out, p.cmd.Stdout = out, in
	err = p.cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("agent: %w; name a program that starts %s", err, agentProgram)
	}
	p.ended = wait(p.cmd)
	return p, nil
}

// Close closes the agent's standard input, upon which it ends.
func (p *process) Close() error {
	p.WriteCloser.Close() // fails if the agent has ended
	end(p.cmd, p.ended)
	return p.out.Close()
}

// wait returns a channel that is closed when the process has ended.
func wait(c *exec.Cmd) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		c.Wait()
		close(ended)
	}()
	return ended
}

// endLimit is the time in which a process ends that has been asked to. Tests shorten it.
var endLimit = 5 * time.Second

// end waits for a process that has been asked to end, and kills it with its group if it does not.
func end(c *exec.Cmd, ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(endLimit):
		c.Cancel()
		<-ended
	}
}
