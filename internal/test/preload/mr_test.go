package preload

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"roced.io/roced/internal/test/lab"
)

// modes are the ways to get at memory: ROCED_MR says whether pages are replaced where
// that can be done, or never, or whether the daemon is to open /proc/PID/mem; a user
// without rights cannot hold up the kernel with userfaultfd.
var modes = []struct {
	name, mr string
	uid      uint32
}{{"auto", "auto", 0}, {"pass", "pass", 0}, {"ptrace", "ptrace", 0}, {"nobody", "auto", 65534}}

// inModes runs a program in all modes.
func inModes(t *testing.T, name string, args ...string) {
	l := newLab(t)
	for _, dir := range []string{filepath.Dir(lab.Bin), l.Dir} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
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

// TestMaps needs Linux 6.11, which can be asked about addresses.
func TestMaps(t *testing.T) { succeed(t, exec.Command(compile(t, "maps"))) }

// TestMovedMemory needs no daemon: the address space is its own.
func TestMovedMemory(t *testing.T) { succeed(t, exec.Command(compile(t, "moved"))) }

const hugePages = "/proc/sys/vm/nr_hugepages"

// TestRegions needs a few huge pages, which it gives back.
func TestRegions(t *testing.T) {
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
	inModes(t, "regions")
}

func TestLifecycle(t *testing.T) { inModes(t, "lifecycle") }

// TestIdleMappings looks at what becomes of memory that is no region any more.
func TestIdleMappings(t *testing.T) {
	l := newLab(t)
	succeed(t, verbs(t, l, "idle", fmt.Sprint(l.Host[0].PID())))
}

// TestSpareMemory registers ever new memory of one length.
func TestSpareMemory(t *testing.T) {
	l := newLab(t)
	succeed(t, verbs(t, l, "spare", fmt.Sprint(l.Host[0].PID())))
}

// TestRace registers memory while threads write to it.
func TestRace(t *testing.T) {
	seed := rand.Uint32()
	t.Log("seed", seed)
	inModes(t, "race", fmt.Sprint(seed))
}

// TestHooks runs a program that overwrites functions of the C library or, where they come
// first, ours.
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
