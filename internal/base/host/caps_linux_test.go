package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// child is the environment variable of a test process that may lose its capabilities.
const child = "ROCED_CAPS_CHILD"

func TestString(t *testing.T) {
	for _, c := range []struct {
		set  Caps
		want string
	}{
		{0, ""}, {CapNetRaw, "CAP_NET_RAW"}, {CapBPF | CapNetAdmin, "CAP_NET_ADMIN, CAP_BPF"}, {1 << 63, "capability 63"},
	} {
		if got := c.set.String(); got != c.want {
			t.Errorf("%#x: %q, want %q", uint64(c.set), got, c.want)
		}
	}
}

// TestDrop runs TestInChild in a program without cgo. Under the race detector this program uses cgo.
func TestDrop(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "caps.test")
	build := exec.Command("go", "test", "-c", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := exec.Command(bin, "-test.run=^TestInChild$", "-test.v")
	c.Env = append(os.Environ(), child+"=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all dropped") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInChild drops capabilities while threads run, block and start.
func TestInChild(t *testing.T) {
	if os.Getenv(child) == "" {
		return // only TestDrop runs this test
	}
	stop := make(chan struct{})
	started := make(chan struct{})
	for i := range 4 {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if i%2 == 0 {
					unix.Poll(nil, 1)
				}
			}
		}()
	}
	for range 4 {
		<-started
	}
	if err := RequireCaps(NetworkCaps); err != nil {
		t.Fatal(err)
	}
	if err := DropCaps(CapNetRaw | CapBPF | CapSysAdmin); err != nil {
		t.Fatal(err)
	}
	if err := RequireCaps(CapNetAdmin | CapPerfmon); err != nil {
		t.Error(err)
	}
	err := RequireCaps(CapNetRaw | CapBPF | CapNetAdmin)
	if !errors.Is(err, unix.EPERM) || !strings.HasPrefix(fmt.Sprint(err), "missing CAP_NET_RAW, CAP_BPF:") {
		t.Error(err)
	}
	if _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("AF_PACKET socket: %v", err)
	}
	go func() { // a new thread
		runtime.LockOSThread()
		started <- struct{}{}
		<-stop
	}()
	<-started
	checkThreads(t, CapNetRaw|CapBPF|CapSysAdmin)
	out, err := exec.Command("cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	checkStatus(t, "executed program", string(out), CapNetRaw|CapBPF|CapSysAdmin)
	close(stop)
	if !t.Failed() {
		t.Log("all dropped")
	}
}

// checkThreads checks the capabilities of all threads.
func checkThreads(t *testing.T, dropped Caps) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d threads, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		checkStatus(t, f, string(text), dropped)
	}
}

// checkStatus checks the capabilities in a file of proc(5).
func checkStatus(t *testing.T, what, text string, dropped Caps) {
	t.Helper()
	found := 0
	for line := range strings.Lines(text) {
		var set Caps
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if name != "CapEff" && name != "CapPrm" && name != "CapInh" {
			continue
		}
		if _, err := fmt.Sscanf(value, "%x", &set); err != nil {
			t.Fatal(err)
		}
		found++
		if set&dropped != 0 {
			t.Errorf("%s: %s has %v", what, name, set&dropped)
		}
	}
	if found != 3 {
		t.Errorf("%s: %d sets", what, found)
	}
}
