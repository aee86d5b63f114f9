// Package caps knows and gives up the capabilities of this process (capabilities(7)).
package caps

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Set is a set of capabilities, a bit each.
type Set uint64

// Capabilities that links of a NIC need (linux/capability.h).
const (
	NetAdmin Set = 1 << unix.CAP_NET_ADMIN // make and change interfaces, attach programs
	NetRaw   Set = 1 << unix.CAP_NET_RAW   // AF_PACKET and AF_XDP sockets
	BPF      Set = 1 << unix.CAP_BPF       // load programs
	SysAdmin Set = 1 << unix.CAP_SYS_ADMIN // enter namespaces; contains BPF
	Perfmon  Set = 1 << unix.CAP_PERFMON
)

// Network is what a daemon needs only until its links are open.
const Network = NetAdmin | NetRaw | BPF | SysAdmin | Perfmon

var names = map[Set]string{
	NetAdmin: "CAP_NET_ADMIN", NetRaw: "CAP_NET_RAW", BPF: "CAP_BPF", SysAdmin: "CAP_SYS_ADMIN", Perfmon: "CAP_PERFMON",
}

// String lists the capabilities by name.
func (s Set) String() string {
	var out []string
	for ; s != 0; s &= s - 1 {
		name, ok := names[s&-s]
		if !ok {
			name = fmt.Sprintf("capability %d", bits.TrailingZeros64(uint64(s)))
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// sets are what capget(2) and capset(2) exchange: two words of each set.
type sets [2]unix.CapUserData

func (c *sets) effective() Set { return Set(c[0].Effective) | Set(c[1].Effective)<<32 }

// remove takes capabilities out of all sets.
func (c *sets) remove(s Set) {
	for i := range c {
		word := uint32(s >> (32 * i))
		c[i].Effective &^= word
		c[i].Permitted &^= word
		c[i].Inheritable &^= word
	}
}

func get() (c sets, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&h, &c[0]); err != nil {
		return c, fmt.Errorf("capget: %w", err)
	}
	return c, nil
}

// Require returns an error that names those of the needed capabilities that the
// calling thread does not have.
func Require(needed Set) error {
	c, err := get()
	if err != nil {
		return err
	}
	have := c.effective()
	if have&SysAdmin != 0 {
		have |= BPF
	}
	if missing := needed &^ have; missing != 0 {
		return fmt.Errorf("missing %v: %w", missing, unix.EPERM)
	}
	return nil
}

// ErrCgo says that the program was built with cgo, whose threads the Go runtime
// cannot change: build it with CGO_ENABLED=0.
var ErrCgo = errors.New("capabilities cannot be dropped: the program was built with cgo")

// Drop gives capabilities up for good, on all threads, and keeps programs that the process
// might execute from getting them again (PR_SET_NO_NEW_PRIVS).
func Drop(s Set) error {
	c, err := get()
	if err != nil {
		return err
	}
	c.remove(s)
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	if e == syscall.ENOTSUP {
		return ErrCgo
	}
	if e != 0 {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", e)
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // pid 0: each thread itself
	_, _, e = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&c[0])), 0)
	runtime.KeepAlive(&h)
	runtime.KeepAlive(&c)
	if e != 0 {
		return fmt.Errorf("capset: %w", e)
	}
	return nil
}
