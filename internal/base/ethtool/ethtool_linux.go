// Package ethtool makes requests of ethtool(8) to network interfaces.
package ethtool

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Request exchanges a request structure of linux/ethtool.h with an interface (SIOCETHTOOL). fd is any socket of the
// interface's network namespace.
func Request(fd int, name string, request unsafe.Pointer) error {
	ifr := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: request}
	copy(ifr.name[:], name)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); e != 0 {
		return e
	}
	return nil
}

// Value is a struct ethtool_value: a request with a single number.
type Value struct{ Cmd, Data uint32 }

// Exchange makes the request v of an interface.
func (v *Value) Exchange(fd int, name string) error { return Request(fd, name, unsafe.Pointer(v)) }
