package netlab

import (
	"os"

	"roced.io/roced/internal/lab/namespace"
)

// Privilege is the privilege of a process to make networks.
type Privilege int

// Privileges.
const (
	Root         Privilege = iota // the process is root or has equivalent capabilities
	UserNS                        // the process runs in a user namespace of namespace.RerunInUserNS
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
	if namespace.IsRerun() {
		return UserNS
	}
	return Root
}
