package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
)

// modes are the ways in which the daemon reaches memory. ROCED_MR selects page replacement (auto), none (pass), or
// /proc/PID/mem opened by the daemon (ptrace). An unprivileged user cannot handle faults of the kernel with userfaultfd.
var modes = []struct {
	name, mr string
	uid      uint32
}{{"auto", "auto", 0}, {"pass", "pass", 0}, {"ptrace", "ptrace", 0}, {"nobody", "auto", 65534}}

// open lets other users run programs of the lab.
func open(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, dir := range []string{filepath.Dir(lab.Bin), l.Dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// inModes runs a program in all modes.
func inModes(t *testing.T, name string, args ...string) {
	l := newLab(t)
	open(t, l)
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			c := verbs(t, l, name)
			c.Args = append(c.Args, args...)
			c.Env = append(c.Env, "ROCED_MR="+mode.mr)
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mode.uid, Gid: mode.uid}}
			succeed(t, c)
		})
	}
}

// TestMaps compares the two ways to read the address space. It needs Linux 6.11 (PROCMAP_QUERY).
func TestMaps(t *testing.T) { succeed(t, exec.Command(compile(t, "maps"))) }

// TestMovedMemory needs no daemon: the program simulates the address space.
func TestMovedMemory(t *testing.T) {
	lab.Long(t)
	succeed(t, exec.Command(compile(t, "moved")))
}

const hugePages = "/proc/sys/vm/nr_hugepages"

// reserveHuge reserves a few huge pages and releases them at the end of the test.
func reserveHuge(t *testing.T) {
	t.Helper()
	old, err := os.ReadFile(hugePages)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hugePages, []byte("4\n"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(hugePages, old, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestRegions(t *testing.T) {
	reserveHuge(t)
	inModes(t, "regions")
}

// TestSharedMemory registers memory of files that programs share, as root and as another user.
func TestSharedMemory(t *testing.T) {
	reserveHuge(t)
	l := newLab(t)
	open(t, l)
	succeed(t, verbs(t, l, "shared", fmt.Sprint(l.Host[0].PID())))
	c := verbs(t, l, "shared", "0")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	c.Env = append(c.Env, "ROCED_EXPLAIN=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "roced: the NIC can map files of tmpfs and hugetlbfs and dma-bufs only") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestChildren makes children of a program with regions in all sorts of memory: with and without the ways to tell
// libibverbs about fork(), and with and without page replacement.
func TestChildren(t *testing.T) {
	reserveHuge(t)
	l := newLab(t)
	for _, way := range []struct{ name, arg, env string }{
		{"plain", "", ""}, {"init", "init", ""}, {"environment", "", "RDMAV_FORK_SAFE=1"}, {"old", "", "IBV_FORK_SAFE=1"},
		{"copied", "init", "ROCED_MR=pass"}, {"huge", "init", "RDMAV_HUGEPAGES_SAFE=1"},
	} {
		t.Run(way.name, func(t *testing.T) {
			c := verbs(t, l, "forkmem", way.arg)
			c.Env = append(c.Env, way.env)
			succeed(t, c)
		})
	}
}

func TestLifecycle(t *testing.T) {
	lab.Long(t)
	inModes(t, "lifecycle")
}

// TestIdleMappings checks mappings of the daemon after the last region in them.
func TestIdleMappings(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	succeed(t, verbs(t, l, "idle", fmt.Sprint(l.Host[0].PID())))
}

// TestSpareMemory repeatedly registers new memory of one length.
func TestSpareMemory(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	succeed(t, verbs(t, l, "spare", fmt.Sprint(l.Host[0].PID())))
}

// TestOverlap registers memory that shares pages with registered memory.
func TestOverlap(t *testing.T) {
	l := newLab(t)
	run := l.Host[0].RunDir
	succeed(t, preloaded(t, run, filepath.Join(run, "sysfs"), compile(t, "overlap", "-libverbs", "-rdynamic"),
		fmt.Sprint(l.Host[0].PID())))
}

// TestRace registers memory while threads write to it.
func TestRace(t *testing.T) {
	lab.Long(t)
	seed := rand.Uint32()
	t.Log("seed", seed)
	inModes(t, "race", fmt.Sprint(seed))
}

// TestHooks runs a program that patches functions of the C library, or of the preload library where dlsym finds that
// first.
func TestHooks(t *testing.T) {
	l := newLab(t)
	for _, scope := range []string{"libc", "first"} {
		t.Run(scope, func(t *testing.T) {
			c := verbs(t, l, "hooks")
			c.Args = append(c.Args, scope)
			succeed(t, c)
		})
	}
}
