package fault

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/ethtool"
)

// From linux/ethtool.h.
const (
	ssFeatures  = 4
	stringLen   = 32
	maxFeatures = 256
	udpOffload  = "tx-udp-segmentation"
)

// gstrings is struct ethtool_gstrings.
type gstrings struct {
	cmd, set, n uint32
	strings     [maxFeatures * stringLen]byte
}

// setFeatures is struct ethtool_sfeatures.
type setFeatures struct {
	cmd, n uint32
	blocks [maxFeatures / 32]struct{ valid, requested uint32 }
}

// noUDPSegmentation turns UDP segmentation offload of an interface off, so that the kernel segments super-frames before
// they reach it. The interface is in the calling thread's namespace.
func noUDPSegmentation(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	// n is an output: the kernel returns all strings.
	r := gstrings{cmd: unix.ETHTOOL_GSTRINGS, set: ssFeatures}
	if err := ethtool.Request(fd, name, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("%s: names of features: %w", name, err)
	}
	for i := range min(int(r.n), maxFeatures) {
		s, _, _ := bytes.Cut(r.strings[i*stringLen:(i+1)*stringLen], []byte{0})
		if string(s) != udpOffload {
			continue
		}
		f := setFeatures{cmd: unix.ETHTOOL_SFEATURES, n: (r.n + 31) / 32}
		f.blocks[i/32].valid = 1 << (i % 32)
		if err := ethtool.Request(fd, name, unsafe.Pointer(&f)); err != nil {
			return fmt.Errorf("%s: %s off: %w", name, udpOffload, err)
		}
		return nil
	}
	return errors.New("the kernel does not have the feature " + udpOffload)
}
