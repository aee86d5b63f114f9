package background

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestEnded: a process has ended even if its parent does not wait for it.
func TestEnded(t *testing.T) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if ended(p) {
		t.Error("has ended while it reads")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !ended(p); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("has not ended before its parent waits")
		}
	}
	if err := c.Wait(); err != nil || !ended(p) {
		t.Errorf("afterwards: %v", err)
	}
}
