package lab

import (
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// TestLaunchUnderNohup: SIGHUP ends a program although this process was started with SIGHUP ignored.
func TestLaunchUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	p := Launch(t, (*exec.Cmd).Start, []string{"sleep", "1000"})
	p.Signal(syscall.SIGHUP)
	if err := p.Wait(Limit); err == nil || p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
		t.Error(err)
	}
	signal.Reset(syscall.SIGHUP)
}
