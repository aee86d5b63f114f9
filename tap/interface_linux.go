package tap

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/rocev2"
)

// QueryInterface reads the state of an interface by its name, through a socket of its
// namespace. The index is 0 if it does not exist or is not Ethernet.
func QueryInterface(fd int, name string) (index int, s LinkState) {
	fail := func(err error) (int, LinkState) {
		if errors.Is(err, unix.ENODEV) {
			err = errors.New("does not exist")
		}
		return 0, LinkState{Err: fmt.Errorf("interface %s: %w", name, err)}
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return fail(err)
	}
	get := func(what uint) uint32 {
		if err == nil {
			err = unix.IoctlIfreq(fd, what, ifr)
		}
		return ifr.Uint32()
	}
	kind := uint16(get(unix.SIOCGIFHWADDR)) // sa_family of the address
	if err == nil && kind != unix.ARPHRD_ETHER {
		return fail(errors.New("is not an Ethernet interface"))
	}
	n, flags, mtu := int(get(unix.SIOCGIFINDEX)), uint16(get(unix.SIOCGIFFLAGS)), int(get(unix.SIOCGIFMTU))
	if err != nil {
		return fail(err)
	}
	s.MTU = min(mtu, rocev2.MaxLinkMTU)
	switch {
	case flags&unix.IFF_UP == 0:
		s.Err = fmt.Errorf("interface %s is set down", name)
	case !hasCarrier(fd, name):
		s.Err = fmt.Errorf("interface %s has no carrier", name)
	case mtu < rocev2.MinLinkMTU:
		s.Err = fmt.Errorf("interface %s: MTU %d has no room for path MTU 256, which needs %d: ip link set %s mtu 1500", name, mtu, rocev2.MinLinkMTU, name)
		s.MTU = 0
	}
	s.Up = s.Err == nil
	return n, s
}

// hasCarrier asks for the link of a device, which ip-link(8) can take away.
// IFF_RUNNING would follow it only after up to a second. It is there when the
// kernel does not tell.
func hasCarrier(fd int, name string) bool {
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	ifr := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // to the size of struct ifreq
	}{data: unsafe.Pointer(&value)}
	copy(ifr.name[:], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	return e != 0 || value.data != 0
}
