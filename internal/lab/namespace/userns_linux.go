package namespace

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const inside = "ROCED_TESTBED_USERNS"

// IsRerun reports whether RerunInUserNS started this process.
func IsRerun() bool { return os.Getenv(inside) != "" }

// NeedsUserNS says how ordinary users can make network namespaces.
const NeedsUserNS = "needs root, or user namespaces for ordinary users: set sysctl kernel.unprivileged_userns_clone=1, " +
	"user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0, and permit them in the seccomp profile"

// ErrNoUserNS means that this user cannot make networks on this system.
var ErrNoUserNS = errors.New("a network of namespaces and TAP devices " + NeedsUserNS + "; TAP devices need /dev/net/tun (modprobe tun)")

// RerunInUserNS runs this program again with the same arguments, as root of a new user namespace, and returns its exit
// code. The program receives SIGTERM when ctx ends.
func RerunInUserNS(ctx context.Context) (code int, err error) {
	if IsRerun() {
		return 0, ErrNoUserNS
	}
	c := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), inside+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := (*Namespace)(nil).Start(c); err != nil {
		return 0, ErrNoUserNS
	}
	err = c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
