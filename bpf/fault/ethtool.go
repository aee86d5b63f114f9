package fault

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/ethtool.h.
const (
	ssFeatures  = 4
	stringLen   = 32
	maxFeatures = 256
	udpOffload  = "tx-udp-segmentation"
)

// request is a struct ethtool_gstrings, and one of ethtool_sfeatures in its words.
type request struct {
	cmd, set, n uint32
	strings     [maxFeatures * stringLen]byte
}

type setFeatures struct {
	cmd, n uint32
	blocks [maxFeatures / 32]struct{ valid, requested uint32 }
}

// noUDPSegmentation makes an interface of the thread's namespace take single UDP
// datagrams: the kernel cuts super-frames apart before they reach it.
func noUDPSegmentation(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	// The kernel gives as many strings as there are, if it can: n is an output.
	r := request{cmd: unix.ETHTOOL_GSTRINGS, set: ssFeatures}
	if err := ethtool(fd, name, unsafe.Pointer(&r)); err != nil {
		return fmt.Errorf("%s: names of features: %w", name, err)
	}
	for i := range min(int(r.n), maxFeatures) {
		s, _, _ := bytes.Cut(r.strings[i*stringLen:(i+1)*stringLen], []byte{0})
		if string(s) != udpOffload {
			continue
		}
		f := setFeatures{cmd: unix.ETHTOOL_SFEATURES, n: (r.n + 31) / 32}
		f.blocks[i/32].valid = 1 << (i % 32)
		if err := ethtool(fd, name, unsafe.Pointer(&f)); err != nil {
			return fmt.Errorf("%s: %s off: %w", name, udpOffload, err)
		}
		return nil
	}
	return errors.New("the kernel knows no " + udpOffload)
}

func ethtool(fd int, name string, arg unsafe.Pointer) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	// struct ifreq: the name, then the pointer.
	var raw struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(raw.name[:], req.Name())
	raw.data = arg
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&raw))); e != 0 {
		return e
	}
	return nil
}
