package host

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

// Caps is a set of capabilities.
type Caps uint64

// Capabilities that ports need (linux/capability.h).
const (
	CapNetAdmin Caps = 1 << unix.CAP_NET_ADMIN // create and configure interfaces, attach programs
	CapNetRaw   Caps = 1 << unix.CAP_NET_RAW   // AF_PACKET and AF_XDP sockets
	CapBPF      Caps = 1 << unix.CAP_BPF       // load programs
	CapSysAdmin Caps = 1 << unix.CAP_SYS_ADMIN // enter namespaces; includes CapBPF
	CapPerfmon  Caps = 1 << unix.CAP_PERFMON
)

// NetworkCaps are the capabilities that a daemon needs only to open its ports.
const NetworkCaps = CapNetAdmin | CapNetRaw | CapBPF | CapSysAdmin | CapPerfmon

var capNames = map[Caps]string{
	CapNetAdmin: "CAP_NET_ADMIN", CapNetRaw: "CAP_NET_RAW", CapBPF: "CAP_BPF", CapSysAdmin: "CAP_SYS_ADMIN", CapPerfmon: "CAP_PERFMON",
}

// String lists the capabilities by name.
func (s Caps) String() string {
	var out []string
	for ; s != 0; s &= s - 1 {
		name, ok := capNames[s&-s]
		if !ok {
			name = fmt.Sprintf("capability %d", bits.TrailingZeros64(uint64(s)))
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// capSets is the data of capget(2) and capset(2): two words of each set.
type capSets [2]unix.CapUserData

func (c *capSets) effective() Caps { return Caps(c[0].Effective) | Caps(c[1].Effective)<<32 }

// remove removes capabilities from all sets.
func (c *capSets) remove(s Caps) {
	for i := range c {
		word := uint32(s >> (32 * i))
		c[i].Effective &^= word
		c[i].Permitted &^= word
		c[i].Inheritable &^= word
	}
}

func getCaps() (c capSets, err error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&h, &c[0]); err != nil {
		return c, fmt.Errorf("capget: %w", err)
	}
	return c, nil
}

// RequireCaps returns an error with the names of the needed capabilities that the calling thread does not have.
func RequireCaps(needed Caps) error {
	c, err := getCaps()
	if err != nil {
		return err
	}
	have := c.effective()
	if have&CapSysAdmin != 0 {
		have |= CapBPF
	}
	if missing := needed &^ have; missing != 0 {
		return fmt.Errorf("missing %v: %w", missing, unix.EPERM)
	}
	return nil
}

// ErrCgo means that the program was built with cgo, so that the Go runtime cannot change the capabilities of all threads.
// Build it with CGO_ENABLED=0.
var ErrCgo = errors.New("cannot drop capabilities: the program was built with cgo")

// DropCaps drops capabilities permanently, on all threads. Programs that the process executes cannot regain them
// (PR_SET_NO_NEW_PRIVS).
func DropCaps(s Caps) error {
	c, err := getCaps()
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
