package netlab

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netns"
)

// starter starts all programs, on one thread. They are to end with this process, however
// that ends, and the kernel sends the signal for that (PR_SET_PDEATHSIG) when the thread ends
// that has started them; this one does not end before the process.
var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// Start starts a command in the namespace, or in that of this process if n is nil. It gets
// SIGTERM when this process ends before it.
func (n *Namespace) Start(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = new(syscall.SysProcAttr)
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGTERM
	done := make(chan error, 1)
	starter() <- func() { done <- n.start(c) }
	return <-done
}

// start leaves the thread where it was: a namespace lives as long as a thread is in it. An
// ordinary user cannot even enter the namespace where he is.
func (n *Namespace) start(c *exec.Cmd) error {
	if n == nil {
		return c.Start()
	}
	home, err := netns.Get()
	if err != nil {
		return fmt.Errorf("own namespace: %w", err)
	}
	defer home.Close()
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("enter namespace: %w", err)
	}
	defer netns.Set(home)
	return c.Start()
}
