package netlab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const inside = "ROCED_TESTBED_USERNS"

// Privilege is the privilege of a process to make networks.
type Privilege int

// Privileges.
const (
	Root         Privilege = iota // the process is root or has equivalent capabilities
	UserNS                        // the process runs in a user namespace of InUserNamespace
	Unprivileged                  // the process cannot make networks
)

// Own determines the privilege of this process. It tries to make namespaces and to open /dev/net/tun.
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

// ErrNoUserNS means that this user cannot make networks on this system.
var ErrNoUserNS = errors.New("network namespaces with TAP devices need root, or user namespaces for ordinary users " +
	"(sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0, " +
	"a seccomp profile that permits them), and /dev/net/tun (modprobe tun)")

// InUserNamespace runs this program again with the same arguments, as root of a new user namespace, and returns its exit
// code. The program receives SIGTERM when ctx ends.
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
