package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Group is a control group for memory: version 2, or version 1 where that has the memory controller.
type Group struct{ dir, limit, usage string }

// NewGroup makes a group with a limit in bytes. It returns nil if this machine permits no control groups, as in most
// containers. The group must be empty at the end: make it before its processes.
func NewGroup(t testing.TB, name string, limit int) *Group {
	t.Helper()
	for _, g := range []Group{{"/sys/fs/cgroup", "memory.max", "memory.current"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"}} {
		g.dir = filepath.Join(g.dir, fmt.Sprintf("roced-%s-%d", name, os.Getpid()))
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if g.set(g.limit, limit) != nil {
			_ = os.Remove(g.dir)
			continue
		}
		t.Cleanup(func() {
			for end := time.Now().Add(Limit); os.Remove(g.dir) != nil; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("%s is still in use", g.dir)
					return
				}
			}
		})
		return &g
	}
	return nil
}

// set writes a number to a file of the group, which must exist.
func (g *Group) set(name string, n int) error {
	f, err := os.OpenFile(filepath.Join(g.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprint(f, n)
	return err
}

// Add moves a process into the group. Memory that it already has stays charged to its old group.
func (g *Group) Add(t testing.TB, pid int) {
	t.Helper()
	Must(t, g.set("cgroup.procs", pid))
}

// Bytes returns the memory of the group.
func (g *Group) Bytes(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.usage))
	Must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	Must(t, err)
	return n
}
