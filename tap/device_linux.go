package tap

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/netns"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/vnet"
)

// device is an attached TAP device.
type device struct {
	fd   int // /dev/net/tun, attached
	ctl  int // socket in the device's namespace for ioctls
	name string
	ns   netns.ID // of Config.Netns

	offload link.Offload
	note    string // why the kernel refused an offload
}

func (d *device) close() {
	unix.Close(d.fd)
	unix.Close(d.ctl)
}

// openDevice attaches to the device in its namespace and configures it.
func openDevice(c Config) (*device, error) {
	id, err := netns.Identify(c.Netns)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", c.Netns, err)
	}
	var d *device
	err = netns.Do(c.Netns, func() (err error) {
		if d, err = attach(c); err != nil {
			return err
		}
		d.ns = id
		if err = configure(d.name, c); err != nil {
			d.close()
		}
		return err
	})
	return d, err
}

// sameNetns reports whether the namespace of the device still has the name ns. An attached device keeps its namespace
// alive, so that only the name shows that the namespace has been deleted or replaced.
func (d *device) sameNetns(ns string) bool {
	id, err := netns.Identify(ns)
	return err == nil && d.ns == id
}

// attach opens the device, which it creates if it does not exist.
func attach(c Config) (*device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("needs /dev/net/tun (option of a container: --device /dev/net/tun): %w", err)
	}
	ctl, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("control socket: %w", err)
	}
	d := &device{fd: fd, ctl: ctl}
	if err := d.setUp(c); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// setUp sets the type of the device and its offloads.
func (d *device) setUp(c Config) error {
	ifr, err := unix.NewIfreq(c.Name)
	if err != nil {
		return fmt.Errorf("device name %q: %w", c.Name, err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(d.fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("device %s: %w", c.Name, attachError(err))
	}
	d.name = ifr.Name()
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETHDRSZ, vnet.HeaderLen); err != nil {
		return fmt.Errorf("device %s: length of the virtio header: %w", d.name, err)
	}
	d.setOffload(c.Offload)
	return nil
}

// attachError explains errors of TUNSETIFF.
func attachError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("another process, such as another roced, uses it; configure another device for this NIC: %w", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("a device with this name exists and is not a single-queue TAP device: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_NET_ADMIN in the namespace or ownership of the device: %w", err)
	}
	return err
}

// setOffload asks for all offloads that the kernel has. USO needs Linux 6.2.
func (d *device) setOffload(want bool) {
	const (
		base = unix.TUN_F_CSUM
		tso  = unix.TUN_F_TSO4 | unix.TUN_F_TSO6
		uso  = unix.TUN_F_USO4 | unix.TUN_F_USO6
	)
	steps := []int{base | tso | uso, base | uso, base | tso, base, 0}
	if !want {
		steps = steps[len(steps)-1:]
	}
	for _, flags := range steps {
		err := unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, flags)
		if err == nil {
			if flags&uso != 0 {
				d.offload = d.probe()
			}
			return
		}
		if d.note == "" {
			d.note = fmt.Sprintf("TUNSETOFFLOAD %#x: %v", flags, err)
		}
	}
}

// probe returns the super-frames that the kernel accepts. It writes super-frames to a device that is down: the kernel
// validates them before it refuses them with EIO. It writes nothing to a device that is up.
func (d *device) probe() link.Offload {
	ifr, err := unix.NewIfreq(d.name)
	if err == nil {
		err = unix.IoctlIfreq(d.ctl, unix.SIOCGIFFLAGS, ifr)
	}
	if err != nil || ifr.Uint16()&unix.IFF_UP != 0 {
		return link.Offload{MaxSegments: vnet.MaxSegmentsOld, MaxBytes: vnet.MaxBytes}
	}
	return vnet.Probe(func(b []byte) error {
		_, err := unix.Write(d.fd, b)
		return err
	})
}

// configure sets MTU, queue length, bridge and state of the device, in the namespace of the calling thread. It changes
// only values that differ, because an owner may attach to a prepared device without the right to change it.
func configure(name string, c Config) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	a := l.Attrs()
	if c.MTU != 0 && a.MTU != c.MTU {
		if err := netlink.LinkSetMTU(l, c.MTU); err != nil {
			return fmt.Errorf("device %s: MTU %d: %w", name, c.MTU, err)
		}
	}
	if a.TxQLen != c.TxQueueLen {
		if err := netlink.LinkSetTxQLen(l, c.TxQueueLen); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("device %s: queue length %d: %w", name, c.TxQueueLen, err)
		}
	}
	if c.Bridge != "" {
		b, err := netlink.LinkByName(c.Bridge)
		if err == nil && a.MasterIndex != b.Attrs().Index {
			err = netlink.LinkSetMaster(l, b)
		}
		if err != nil {
			return fmt.Errorf("device %s: bridge %s: %w", name, c.Bridge, err)
		}
	}
	if a.RawFlags&unix.IFF_UP == 0 {
		if err := netlink.LinkSetUp(l); err != nil {
			return fmt.Errorf("device %s: set up: %w", name, err)
		}
	}
	return nil
}

// query reads the state of the device. gone means that the device no longer exists.
func (d *device) query() (s link.State, gone bool) {
	ifr, err := unix.NewIfreq(d.name)
	if err == nil {
		err = unix.IoctlIfreq(d.fd, unix.TUNGETIFF, ifr)
	}
	if err != nil {
		return link.State{Err: err}, true
	}
	d.name = ifr.Name() // which may have changed
	var flags uint16
	if err = unix.IoctlIfreq(d.ctl, unix.SIOCGIFFLAGS, ifr); err == nil {
		flags = ifr.Uint16()
		err = unix.IoctlIfreq(d.ctl, unix.SIOCGIFMTU, ifr)
	}
	if err != nil {
		return link.State{Err: err}, errors.Is(err, unix.ENODEV)
	}
	return port.StateOf(d.ctl, "device", d.name, flags, int(ifr.Uint32())), false
}
