package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// confinedBy makes this program confine itself and execute another program: its arguments.
const confinedBy = "ROCED_E2E_CONFINED"

// UID 65534 is an unprivileged user and group.
const nobody = 65534

// forbidden are the system calls that the seccomp profile of Docker and containerd refuses to processes without
// capabilities. Kubernetes therefore refuses them to pods of its restricted standard ("RuntimeDefault").
var forbidden = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT,
	unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_GET_MEMPOLICY, unix.SYS_INIT_MODULE,
	unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MBIND, unix.SYS_MOUNT,
	unix.SYS_MOVE_MOUNT, unix.SYS_MOVE_PAGES, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT,
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE, unix.SYS_QUOTACTL, unix.SYS_REBOOT,
	unix.SYS_REQUEST_KEY, unix.SYS_SET_MEMPOLICY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE,
	unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// noNamespaces is the end of the filter. clone() creates no namespaces. clone3() returns ENOSYS, because a filter
// cannot inspect its arguments.
var noNamespaces = []unix.SockFilter{
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16}, // seccomp_data.args[0]
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
}

// becomeConfined executes another program as an unprivileged user. That program has no capability, cannot gain any, and
// cannot make forbidden system calls.
func becomeConfined() error {
	runtime.LockOSThread() // only this thread survives execve
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) == nil; c++ {
	}
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0}, {unix.SYS_SETRESGID, nobody, nobody, nobody}, {unix.SYS_SETRESUID, nobody, nobody, nobody},
		{unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1},
	} {
		if _, _, e := unix.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
			return fmt.Errorf("system call %d: %w", call[0], e)
		}
	}
	f := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // seccomp_data.nr
	for _, nr := range forbidden {
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	f = append(f, noNamespaces...)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return unix.Exec(os.Args[1], os.Args[1:], []string{"PATH=/usr/bin:/bin", "TMPDIR=" + os.Getenv("TMPDIR")})
}

// confined returns a command that runs confined.
func confined(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), confinedBy+"=1")
	return c
}

// copyPrograms copies programs to a folder where all users may execute them.
func copyPrograms(dir string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(lab.Program(name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confinedBed makes two connected namespaces, and a folder of programs that an unprivileged user may run.
func confinedBed(t *testing.T) (bed *netlab.Bed, dir string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make the network and then to become an ordinary user")
	}
	bed, err := netlab.NewDirect([2]bool{true, true})
	lab.Must(t, err)
	t.Cleanup(func() { bed.Close() })
	dir = lab.Dir(t)
	lab.Must(t, os.Chmod(dir, 0o755))
	lab.Must(t, copyPrograms(dir, "roced", "roceperf", "rocectl"))
	return bed, dir
}

// TestConfined runs both daemons and the programs as an unprivileged user does in a container without any right. The
// namespaces and addresses exist before, as in a pod.
func TestConfined(t *testing.T) {
	lab.Long(t)
	bed, dir := confinedBed(t)
	var run [2]string
	for i, port := range []string{"interface: " + veth, "address: 198.18.0.2"} {
		own := filepath.Join(dir, fmt.Sprint(i))
		lab.Must(t, os.Mkdir(own, 0o755))
		lab.Must(t, os.Chown(own, nobody, nobody))
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		run[i] = filepath.Join(own, "run")
		lab.Must(t, os.WriteFile(file, fmt.Appendf(nil, "run_dir: %q\nnics: [{name: rxe_a, port: {type: udp, %s}}]\n", run[i], port), 0o644))
		roced := lab.LaunchCmd(t, bed.NS[i].Start, confined(filepath.Join(dir, "roced"), "run", "--config", file))
		lab.Must(t, roced.Ready("it is ready", func() (bool, error) { return strings.Contains(roced.Said(), "roced is ready"), nil }))
		checkConfined(t, roced.PID())
		defer roced.Signal(syscall.SIGTERM)
	}
	for n, args := range []string{"write-bw -s 64k -n 16 --verify", "read-bw -s 64k -n 16 --verify", "send-bw -c ud -s 1k -n 16 --verify",
		"send-bw -s 256k -n 8 --profile rc --verify"} {
		common := append([]string{filepath.Join(dir, "roceperf")}, strings.Fields(args)...)
		sock := filepath.Join(dir, "0", fmt.Sprintf("oob%d", n))
		common = append(common, "--oob", "unix:"+sock)
		server := lab.LaunchCmd(t, bed.NS[1].Start, confined(append(common, "--run-dir", run[1])...))
		lab.Must(t, server.Ready("it listens", func() (bool, error) { return pathExists(sock), nil }))
		client := lab.LaunchCmd(t, bed.NS[0].Start, confined(append(common, "--run-dir", run[0], "peer")...))
		lab.Must(t, client.Wait(lab.Limit))
		lab.Must(t, server.Wait(lab.Limit))
	}
}

// TestMulticast makes the kernel join groups for stock programs, on all ports that share an interface with it.
func TestMulticast(t *testing.T) {
	lab.Long(t)
	lab.Need(t, "mckey")
	for _, port := range []string{"udp", "packet", "xdp"} {
		t.Run(port, func(t *testing.T) {
			l := newLab(t, netlab.LabOptions{Shared: [2]string{port, port}})
			for _, group := range []string{"239.10.0.1", "ff15::99"} {
				server := l.Exec(1, "mckey", "-m", group)
				lab.Must(t, server.Ready("it is attached", func() (bool, error) {
					all := lab.Query[[]api.Resource](l.Lab, 1, "res", "show", "qp")
					return slices.ContainsFunc(all, func(r api.Resource) bool { return len(r.QP.Groups) > 0 }), nil
				}))
				client := l.Exec(0, "mckey", "-m", group, "-s")
				for _, p := range []*lab.Proc{client, server} {
					lab.Must(t, p.Wait(lab.Limit))
					if !strings.Contains(p.Said(), "test complete") {
						t.Errorf("%s: %s", group, p.Said())
					}
				}
			}
		})
	}
}

// checkConfined checks that a process is confined.
func checkConfined(t *testing.T, pid int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	lab.Must(t, err)
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(text), want) {
			t.Fatalf("not %q:\n%s", want, text)
		}
	}
}

// TestCMOnUDP connects stock programs by rdma_cm.
func TestCMOnUDP(t *testing.T) {
	lab.Need(t, "rping")
	l := newLab(t, onUDP)
	for _, addr := range []string{"198.18.0.2", "fd00::2"} {
		l.rping(addr)
	}
}
