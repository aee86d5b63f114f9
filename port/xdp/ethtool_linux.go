package xdp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/ethtool"
)

// channels is struct ethtool_channels of linux/ethtool.h.
type channels struct {
	cmd                                 uint32
	maxRx, maxTx, maxOther, maxCombined uint32
	rx, tx, other, combined             uint32
}

// rxQueues returns the number of receive queues of an interface, 1 if the driver does not report it. fd is a socket of
// the interface's namespace.
func rxQueues(fd int, name string) int {
	ch := channels{cmd: unix.ETHTOOL_GCHANNELS}
	if err := ethtool.Request(fd, name, unsafe.Pointer(&ch)); err != nil || ch.rx+ch.combined == 0 {
		return 1
	}
	return int(ch.rx + ch.combined)
}
