package pvm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
)

// opened opens a file for the duration of the test.
func opened(t *testing.T, path string, mode int) int {
	t.Helper()
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestAdopt checks that passed memory stays accessible until the process calls execve, for every holder of the
// descriptors.
func TestAdopt(t *testing.T) {
	v := newVictim(t, 65534)
	dir := "/proc/" + strconv.Itoa(v.cmd.Process.Pid)
	p, err := Adopt(opened(t, dir+"/mem", unix.O_RDWR), opened(t, dir+"/maps", unix.O_RDONLY))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Write(v.addr, []byte("the daemon'")) || p.Check(v.addr, 1<<16, true) != nil {
		t.Error("no access")
	}
	v.say("show")
	if s := v.line(); s != "the daemon'" {
		t.Errorf("the child has %q", s)
	}
	v.say("exec")
	if s := v.line(); s != "done" {
		t.Fatalf("got %q", s)
	}
	var f *Fault
	if err := p.Check(v.addr, 1, false); !errors.As(err, &f) || f.Why != allGone || p.Read(v.addr, make([]byte, 1)) {
		t.Errorf("after execve: %v", err)
	}
}

// TestAdoptHostile checks that Adopt refuses everything except the two files of one process, and reads none of it.
func TestAdoptHostile(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "1")
	if err := os.Mkdir(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mem", "maps"} {
		if err := os.WriteFile(filepath.Join(fake, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mem, maps := opened(t, "/proc/self/mem", unix.O_RDWR), opened(t, "/proc/self/maps", unix.O_RDONLY)
	memfd, err := shm.Create("mem", page, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	v := newVictim(t, 0)
	masked := mounted(t, mount{"/proc/self/mem", fake + "/mem", unix.O_RDWR}, mount{"/proc/self/environ", fake + "/maps", unix.O_RDONLY})
	for _, c := range []struct {
		name      string
		mem, maps int
	}{
		{"other file", opened(t, fake+"/mem", unix.O_RDWR), maps},
		{"other maps", mem, opened(t, fake+"/maps", unix.O_RDONLY)},
		{"memory", memfd, maps},
		{"read only", opened(t, "/proc/self/mem", unix.O_RDONLY), maps},
		{"path only", opened(t, "/proc/self/mem", unix.O_PATH), maps},
		{"other file of procfs", opened(t, "/proc/self/comm", unix.O_RDWR), maps},
		{"other file of procfs for maps", mem, opened(t, "/proc/self/smaps", unix.O_RDONLY)},
		{"in the wrong order", maps, mem},
		{"folder", mem, opened(t, "/proc/self/task", unix.O_RDONLY)},
		{"of two processes", mem, opened(t, "/proc/"+strconv.Itoa(v.cmd.Process.Pid)+"/maps", unix.O_RDONLY)},
		{"no descriptor", -1, maps},
		{"device", opened(t, "/dev/zero", unix.O_RDWR), maps},
		{"mounted on files of these names", masked[0], masked[1]},
	} {
		if p, err := Adopt(c.mem, c.maps); !errors.Is(err, ErrNotMemory) {
			t.Errorf("%s: %v", c.name, err)
			if err == nil {
				p.Close()
			}
		}
	}
	p, err := Adopt(mem, maps)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

// mounted opens files that are mounted on others, in a mount namespace that lasts as long as the test.
func mounted(t *testing.T, mounts ...mount) []int {
	t.Helper()
	fds, done, end := make([]int, len(mounts)), make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for i, m := range mounts {
			if err == nil {
				err = unix.Mount(m.file, m.on, "", unix.MS_BIND, "")
			}
			if err == nil {
				fds[i], err = unix.Open(m.on, m.mode|unix.O_CLOEXEC, 0)
			}
		}
		done <- err
		<-end
	}()
	t.Cleanup(func() { close(end) })
	err := <-done
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_SYS_ADMIN")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		t.Cleanup(func() { unix.Close(fd) })
	}
	return fds
}

type mount struct {
	file, on string
	mode     int
}

// TestAdoptElsewhere adopts the memory of a process in another user and PID namespace.
func TestAdoptElsewhere(t *testing.T) {
	c := exec.Command("unshare", "-U", "-r", "--fork", "--pid", "--mount-proc", "--kill-child", "sh", "-c",
		"exec 3<>/proc/self/mem 4</proc/self/maps; echo ready; read end")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer in.Close()
	if n, err := out.Read(make([]byte, 6)); err != nil || n != 6 {
		t.Skipf("no user namespaces: %v", err)
	}
	child, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/task/" + strconv.Itoa(c.Process.Pid) + "/children")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(child[:len(child)-1]))
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	var fd [2]int
	for i := range fd {
		if fd[i], err = unix.PidfdGetfd(pidfd, 3+i, 0); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd[i])
	}
	p, err := Adopt(fd[0], fd[1])
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}
