package netlab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const inside = "ROCED_TESTBED_USERNS"

// Privilege says how a process came to be able to build the network.
type Privilege int

// Ways.
const (
	Root         Privilege = iota // it is root, or as good as
	UserNS                        // it runs in a user namespace that InUserNamespace made
	Unprivileged                  // it cannot
)

// Own reports the privilege of this process by trying: to make namespaces, and to
// open the device that TAPs come from.
func Own() Privilege {
	b, err := New()
	if err != nil {
		return Unprivileged
	}
	b.Close()
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return Unprivileged
	}
	tun.Close()
	if os.Getenv(inside) != "" {
		return UserNS
	}
	return Root
}

// ErrNoUserNS says that this system does not let this user make the network, and what would.
var ErrNoUserNS = errors.New("network namespaces with TAP devices take root, or user namespaces for ordinary users " +
	"(sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0, " +
	"a seccomp profile that permits them), and /dev/net/tun (modprobe tun)")

// InUserNamespace runs this program again, with the same arguments, as root of
// a new user namespace, and returns its exit code. When ctx ends, it gets SIGTERM.
func InUserNamespace(ctx context.Context) (code int, err error) {
	if os.Getenv(inside) != "" {
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
