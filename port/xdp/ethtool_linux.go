package xdp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// channels is struct ethtool_channels of linux/ethtool.h.
type channels struct {
	cmd                                 uint32
	maxRx, maxTx, maxOther, maxCombined uint32
	rx, tx, other, combined             uint32
}

// rxQueues asks for the receive queues of an interface; a driver that does not tell
// has one.
func rxQueues(fd int, name string) int {
	ch := channels{cmd: unix.ETHTOOL_GCHANNELS}
	if e := ethtool(fd, name, unsafe.Pointer(&ch)); e != 0 || ch.rx+ch.combined == 0 {
		return 1
	}
	return int(ch.rx + ch.combined)
}

// ethtool is SIOCETHTOOL of an interface, through a socket of its namespace.
func ethtool(fd int, name string, data unsafe.Pointer) unix.Errno {
	ifr := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // to the size of struct ifreq
	}{data: data}
	copy(ifr.name[:], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	return e
}
