package test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// rounds is the number of repetitions in TestLeaks.
const rounds = 1000

// withCM makes a command for a program that also uses librdmacm, on the first host's NIC.
func withCM(t *testing.T, l *lab.Lab, name string, args ...string) *exec.Cmd {
	t.Helper()
	run := l.Host[0].RunDir
	return preloaded(t, run, filepath.Join(run, "sysfs"), compile(t, name, "-rdynamic", "-libverbs", "-lrdmacm"), args...)
}

func TestLeaks(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	succeed(t, withCM(t, l, "leaks", fmt.Sprint(l.Host[0].PID()), fmt.Sprint(rounds)))
}

func TestClosing(t *testing.T) {
	lab.Long(t)
	succeed(t, withCM(t, newLab(t), "closing"))
}

func TestForks(t *testing.T) {
	lab.Long(t)
	succeed(t, withCM(t, newLab(t), "forks"))
}

// TestThreads also runs the program after its port has gone down and up. The same events arrive when the daemon at the
// other end starts late; they must not end the wait of a thread.
func TestThreads(t *testing.T) {
	lab.Long(t)
	t.Run("port up", func(t *testing.T) { succeed(t, withCM(t, newLab(t), "threads")) })
	t.Run("port events", func(t *testing.T) {
		l := newLab(t)
		c := withCM(t, l, "threads", "flap")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var diag strings.Builder
		c.Stderr = &diag
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			t.Errorf("the program printed %q, %v", line, err)
		}
		if err := l.Host[1].Stop(os.Interrupt); err != nil {
			t.Error(err)
		}
		if line, err := lines.ReadString('\n'); line != "down\n" {
			t.Errorf("the program printed %q, %v", line, err)
		}
		if err := l.Host[1].Start(lab.Bin); err != nil {
			t.Error(err)
		}
		if err := c.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, &diag)
		}
	})
}

// TestSmallStacks measures the stacks of threads. The smallest possible stack has 16 KiB.
func TestSmallStacks(t *testing.T) { succeed(t, verbs(t, newLab(t), "stack")) }

// TestProviderErrors checks that the library corrects errors of rdma-core's provider.
func TestProviderErrors(t *testing.T) {
	lab.Long(t)
	succeed(t, verbs(t, newLab(t), "provider"))
}

// TestProviderFlags checks flags that the provider refuses and the library passes on: IGNORE_OVERRUN of completion queues,
// BLOCK_SELF_MCAST_LB of queue pairs. It also checks ibv_modify_cq().
func TestProviderFlags(t *testing.T) { succeed(t, verbs(t, newLab(t), "flags")) }

// TestExtendedPosts tries every builder of the extended post API with every setter.
func TestExtendedPosts(t *testing.T) {
	header, err := os.ReadFile("/usr/include/infiniband/verbs.h")
	if err != nil || !strings.Contains(string(header), "wr_atomic_cmp_swp") {
		t.Skip("this release of rdma-core lacks the extended post API")
	}
	args := []string{"-libverbs"}
	if strings.Contains(string(header), "wr_flush") {
		args = append(args, "-DFLUSH")
	}
	run := newLab(t).Host[0].RunDir
	succeed(t, preloaded(t, run, filepath.Join(run, "sysfs"), compile(t, "builders", args...)))
}

// TestGIDTable queries all entries of the GID table in all ways, in both orders.
func TestGIDTable(t *testing.T) {
	succeed(t, verbs(t, newLab(t), "gids"))
	l := lab.New(t, netlab.LabOptions{Unix: true, Extra: "    mlx5_gids: true\n"})
	succeed(t, verbs(t, l, "gids", "mlx5"))
}

// TestSharedReceiveQueue resizes a queue, also during traffic.
func TestSharedReceiveQueue(t *testing.T) { succeed(t, verbs(t, newLab(t), "srq")) }

// TestNotCarried checks the refusal of verbs that the provider does not support (docs/reference/clients.md).
func TestNotCarried(t *testing.T) {
	lab.Long(t)
	succeed(t, verbs(t, newLab(t), "features"))
}

func TestExtendedPolling(t *testing.T) {
	lab.Long(t)
	succeed(t, withCM(t, newLab(t), "cqex"))
}

// TestTimeStamps covers ibv_create_cq_ex() with both kinds of time stamps, and ibv_query_rt_values_ex().
func TestTimeStamps(t *testing.T) {
	lab.Long(t)
	succeed(t, verbs(t, newLab(t), "stamps"))
}

// TestWallClock needs no daemon: the program simulates the clocks.
func TestWallClock(t *testing.T) { succeed(t, exec.Command(compile(t, "wallclock"))) }

// TestHeldCounter reads a counter of sysfs repeatedly through one descriptor.
func TestHeldCounter(t *testing.T) {
	lab.Long(t)
	succeed(t, verbs(t, newLab(t), "counter"))
}

// TestDeviceNodes lists /dev/infiniband, by the C library and by the tools of the distribution.
func TestDeviceNodes(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	succeed(t, verbs(t, l, "nodes"))
	run := l.Host[0].RunDir
	tree := filepath.Join(run, "sysfs")
	for _, c := range []*exec.Cmd{
		preloaded(t, run, tree, "ls", "/dev/infiniband/"),
		preloaded(t, run, tree, "bash", "-c", "echo /dev/infiniband/*; test -d /dev/infiniband -a -c /dev/infiniband/uverbs0"),
		preloaded(t, run, tree, "ls", "-l", "/dev/infiniband"),
	} {
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "uverbs0") || !strings.Contains(string(out), "rdma_cm") {
			t.Errorf("%v: %v\n%s", c.Args, err, out)
		}
	}
}

// TestPythonForks runs the distribution's Python, because pyverbs is built for it.
func TestPythonForks(t *testing.T) {
	lab.Long(t)
	run := newLab(t).Host[0].RunDir
	succeed(t, preloaded(t, run, filepath.Join(run, "sysfs"), "/usr/bin/python3", "testdata/forks.py"))
}

// TestDaemonRestarts replaces the daemon while a program runs.
func TestDaemonRestarts(t *testing.T) {
	lab.Long(t)
	for _, sig := range []os.Signal{os.Interrupt, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			l := newLab(t)
			c := withCM(t, l, "restart")
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var diag strings.Builder
			c.Stderr = &diag
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Errorf("the program printed %q, %v", line, err)
			}
			if err := l.Host[0].Stop(sig); err != nil && sig != os.Kill {
				t.Error(err)
			}
			if err := l.Host[0].Start(lab.Bin); err != nil {
				t.Error(err)
			}
			if _, err := io.WriteString(in, "replaced\n"); err != nil {
				t.Error(err)
			}
			if err := c.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, &diag)
			}
		})
	}
}

// TestWithinTools runs a program under debugging tools as docs/guides/programs.md describes.
func TestWithinTools(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	t.Run("address sanitizer", func(t *testing.T) {
		skipOldSanitizer(t)
		run := l.Host[0].RunDir
		c := preloaded(t, run, filepath.Join(run, "sysfs"), compile(t, "provider", "-fsanitize=address", "-libverbs"))
		c.Env = append(c.Env, "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0")
		succeed(t, c)
	})
	t.Run("valgrind", func(t *testing.T) {
		lab.Need(t, "valgrind")
		c := verbs(t, l, "provider")
		c.Path, c.Args = "/usr/bin/valgrind", append([]string{"valgrind"}, c.Args...)
		succeed(t, c)
	})
}

// TestTools inspects devices with the distribution's tools.
func TestTools(t *testing.T) {
	lab.Long(t)
	h := newLab(t).Host[0]
	c := preloaded(t, h.RunDir, filepath.Join(h.RunDir, "sysfs"), "bash", "testdata/tools.sh")
	c.Env = append(c.Env, "DEVICE="+h.Device, "SCRATCH="+t.TempDir())
	succeed(t, c)
}

// sanitized builds the library with GCC's sanitizers. The result makes a command run with it.
func sanitized(t *testing.T) func(*exec.Cmd) *exec.Cmd {
	t.Helper()
	sources, err := filepath.Glob("../*.c")
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(lab.Bin, "libroced_sanitized.so")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fPIC", "-shared", "-fvisibility=hidden",
		"-Wl,--version-script=../versions.map", "-o", lib}, sources...)
	args = append(args, "-ldl", "-lpthread")
	succeed(t, exec.Command("gcc", args...))
	skipOldSanitizer(t)
	list := lib
	for _, runtime := range []string{"libubsan.so", "libasan.so"} { // the last one must come first in LD_PRELOAD
		out, err := exec.Command("gcc", "-print-file-name="+runtime).Output()
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		list = path + ":" + list
	}
	return func(c *exec.Cmd) *exec.Cmd {
		// libibverbs and the test programs keep some memory until the end.
		c.Env = append(c.Env, "LD_PRELOAD="+list, "ASAN_OPTIONS=detect_leaks=0", "UBSAN_OPTIONS=halt_on_error=1")
		return c
	}
}

func skipOldSanitizer(t *testing.T) {
	if old, err := exec.Command("gcc", "-dumpversion").Output(); err == nil && strings.HasPrefix(string(old), "10") {
		t.Skip("GCC 10's address sanitizer (Debian 11) crashes with any library that interposes functions of the C library, even in /bin/true")
	}
}

// TestSanitized runs programs with a library that detects invalid memory accesses and undefined behaviour. The
// sanitizers' allocator does not support fork() in a program with threads, so forks is not among the programs.
func TestSanitized(t *testing.T) {
	lab.Long(t)
	l := newLab(t)
	with := sanitized(t)
	for _, name := range []string{"events", "closing", "threads"} {
		t.Run(name, func(t *testing.T) { succeed(t, with(withCM(t, l, name))) })
	}
	t.Run("hostile", func(t *testing.T) { succeed(t, with(hostile(t))) })
}
