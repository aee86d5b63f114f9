package port

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/ethtool"
	"roced.io/roced/port/link"
)

// QueryInterface reads the state of an interface. fd is a socket of its namespace. The index is 0 if the interface
// does not exist or is not Ethernet.
func QueryInterface(fd int, name string) (index int, s link.State) {
	fail := func(err error) (int, link.State) {
		if errors.Is(err, unix.ENODEV) {
			err = errors.New("does not exist")
		}
		return 0, link.State{Err: fmt.Errorf("interface %s: %w", name, err)}
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return fail(err)
	}
	get := func(request uint) uint32 {
		if err == nil {
			err = unix.IoctlIfreq(fd, request, ifr)
		}
		return ifr.Uint32()
	}
	kind := uint16(get(unix.SIOCGIFHWADDR)) // sa_family of the address
	if err == nil && kind != unix.ARPHRD_ETHER {
		return fail(errors.New("is not an Ethernet interface"))
	}
	index = int(get(unix.SIOCGIFINDEX))
	flags, mtu := uint16(get(unix.SIOCGIFFLAGS)), int(get(unix.SIOCGIFMTU))
	if err != nil {
		return fail(err)
	}
	s = StateOf(fd, "interface", name, flags, min(mtu, link.MaxMTU))
	if s.Up && mtu < link.MinMTU {
		s = link.State{Err: fmt.Errorf("interface %s: MTU %d is too small for path MTU 256, which needs %d: ip link set %s mtu 1500",
			name, mtu, link.MinMTU, name)}
	}
	return index, s
}

// StateOf returns the state of a device with these flags and this MTU. kind precedes its name in errors.
func StateOf(fd int, kind, name string, flags uint16, mtu int) link.State {
	s := link.State{MTU: mtu}
	switch {
	case flags&unix.IFF_UP == 0:
		s.Err = fmt.Errorf("%s %s is set down", kind, name)
	case !hasCarrier(fd, name):
		s.Err = fmt.Errorf("%s %s has no carrier", kind, name)
	}
	s.Up = s.Err == nil
	return s
}

// hasCarrier reads the carrier of a device, which ip-link(8) can take away. IFF_RUNNING follows the carrier with a
// delay of up to a second. If the kernel does not report a carrier, hasCarrier returns true.
func hasCarrier(fd int, name string) bool {
	v := ethtool.Value{Cmd: unix.ETHTOOL_GLINK}
	return v.Exchange(fd, name) != nil || v.Data != 0
}
