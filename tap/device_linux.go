package tap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vnetHdrLen is the size of struct virtio_net_hdr without the field num_buffers.
const vnetHdrLen = 10

// netnsDir is where iproute2 keeps named namespaces.
const netnsDir = "/run/netns"

// nsID identifies a namespace while it exists.
type nsID struct{ dev, ino uint64 }

// device is an attached TAP device and what is needed to look after it.
type device struct {
	fd   int // /dev/net/tun, attached
	ctl  int // socket in the device's namespace for ioctls
	name string
	ns   nsID // of TAPConfig.Netns; zero without one
	// segments is how many datagrams a super-frame may have, 0 when the device
	// takes none; note says why, if it was asked to.
	segments int
	note     string
}

func (d *device) close() {
	unix.Close(d.fd)
	unix.Close(d.ctl)
}

// openDevice attaches to the device and configures it, on an OS thread that
// enters the namespace and ends with the call. The goroutine stays locked to the
// thread, so that the runtime throws the thread away.
func openDevice(c TAPConfig) (*device, error) {
	type result struct {
		d   *device
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		d, err := openHere(c)
		done <- result{d, err}
	}()
	r := <-done
	return r.d, r.err
}

// openHere does the work of openDevice on a thread that may change its namespace.
func openHere(c TAPConfig) (*device, error) {
	id, err := enterNetns(c.Netns)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", c.Netns, err)
	}
	d, err := attach(c)
	if err != nil {
		return nil, err
	}
	d.ns = id
	if err := configure(d.name, c); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// netnsPath returns the file of a namespace that is given by path or by name.
func netnsPath(ns string) string {
	if strings.ContainsRune(ns, '/') {
		return ns
	}
	return filepath.Join(netnsDir, ns)
}

// enterNetns moves the calling thread into a namespace; the empty one is its own.
func enterNetns(ns string) (nsID, error) {
	if ns == "" {
		return nsID{}, nil
	}
	f, err := os.Open(netnsPath(ns))
	if err != nil {
		return nsID{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nsID{}, err
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return nsID{}, fmt.Errorf("setns: %w", err)
	}
	return nsID{uint64(st.Dev), st.Ino}, nil
}

// sameNetns reports whether the namespace that d is in is still the one of that
// name. An attached device keeps its namespace alive, so nothing else would tell
// that it has been deleted or made anew.
func (d *device) sameNetns(ns string) bool {
	if ns == "" {
		return true
	}
	var st unix.Stat_t
	err := unix.Stat(netnsPath(ns), &st)
	return err == nil && d.ns == nsID{uint64(st.Dev), st.Ino}
}

// attach opens the device, creating it when there is none.
func attach(c TAPConfig) (*device, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("needs the device /dev/net/tun, which a container gets by --device /dev/net/tun: %w", err)
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

// setUp sets the kind of the device and its offloads.
func (d *device) setUp(c TAPConfig) error {
	ifr, err := unix.NewIfreq(c.Name)
	if err != nil {
		return fmt.Errorf("device name %q: %w", c.Name, err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(d.fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("device %s: %w", c.Name, attachError(err))
	}
	d.name = ifr.Name()
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETHDRSZ, vnetHdrLen); err != nil {
		return fmt.Errorf("device %s: length of the virtio header: %w", d.name, err)
	}
	d.setOffload(c.Offload)
	return nil
}

// attachError explains the answers of TUNSETIFF that do not speak for themselves.
func attachError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("another process uses it, such as another roced; give this NIC a device of its own: %w", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("a device of that name exists and is not a single-queue TAP: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("needs CAP_NET_ADMIN in the namespace or the ownership of the device: %w", err)
	}
	return err
}

// setOffload asks for as much as the kernel gives. USO needs Linux 6.2.
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
				d.segments = d.probeSegments()
			}
			return
		}
		if d.note == "" {
			d.note = fmt.Sprintf("TUNSETOFFLOAD %#x: %v", flags, err)
		}
	}
}

// probeSegments finds out how many segments the kernel takes. It writes a
// super-frame to a device that is not up yet: one that is acceptable is refused
// with EIO only after it has been looked at. Nothing is written to a device that
// is up already.
func (d *device) probeSegments() int {
	ifr, err := unix.NewIfreq(d.name)
	if err == nil {
		err = unix.IoctlIfreq(d.ctl, unix.SIOCGIFFLAGS, ifr)
	}
	if err != nil || ifr.Uint16()&unix.IFF_UP != 0 {
		return usoMaxSegmentsOld
	}
	if _, err := unix.Write(d.fd, probeFrame(usoMaxSegments)); errors.Is(err, unix.EIO) {
		return usoMaxSegments
	}
	return usoMaxSegmentsOld
}

// configure sets MTU, queue length, bridge and state of the device, in the
// namespace of the calling thread. It touches only what differs: the owner of a
// prepared device may attach to it without being allowed to change it.
func configure(name string, c TAPConfig) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("device %s: %w", name, err)
	}
	a := l.Attrs()
	fail := func(what string, err error) error {
		return fmt.Errorf("device %s: %s: %w", name, what, err)
	}
	if c.MTU != 0 && a.MTU != c.MTU {
		if err := netlink.LinkSetMTU(l, c.MTU); err != nil {
			return fail(fmt.Sprintf("MTU %d", c.MTU), err)
		}
	}
	if q := c.txQueueLen(); a.TxQLen != q {
		if err := netlink.LinkSetTxQLen(l, q); err != nil && !errors.Is(err, unix.EPERM) {
			return fail(fmt.Sprintf("queue length %d", q), err)
		}
	}
	if c.Bridge != "" {
		b, err := netlink.LinkByName(c.Bridge)
		if err != nil {
			return fail("bridge "+c.Bridge, err)
		}
		if a.MasterIndex != b.Attrs().Index {
			if err := netlink.LinkSetMaster(l, b); err != nil {
				return fail("bridge "+c.Bridge, err)
			}
		}
	}
	if a.RawFlags&unix.IFF_UP == 0 {
		if err := netlink.LinkSetUp(l); err != nil {
			return fail("set up", err)
		}
	}
	return nil
}

// query reads the state of the device; gone means that it does not exist any more.
func (d *device) query() (s LinkState, gone bool) {
	ifr, err := unix.NewIfreq(d.name)
	if err == nil {
		err = unix.IoctlIfreq(d.fd, unix.TUNGETIFF, ifr) // its name may have changed
	}
	if err != nil {
		return LinkState{Err: err}, true
	}
	d.name = ifr.Name()
	if err := unix.IoctlIfreq(d.ctl, unix.SIOCGIFFLAGS, ifr); err != nil {
		return LinkState{Err: err}, errors.Is(err, unix.ENODEV)
	}
	switch {
	case ifr.Uint16()&unix.IFF_UP == 0:
		s.Err = fmt.Errorf("device %s is set down", d.name)
	case !hasCarrier(d.ctl, d.name):
		s.Err = fmt.Errorf("device %s has no carrier", d.name)
	}
	if ifr, err = unix.NewIfreq(d.name); err == nil {
		err = unix.IoctlIfreq(d.ctl, unix.SIOCGIFMTU, ifr)
	}
	if err != nil {
		return LinkState{Err: err}, errors.Is(err, unix.ENODEV)
	}
	s.MTU, s.Up = int(ifr.Uint32()), s.Err == nil
	return s, false
}

// rawRW is readv or writev. It does not tell the scheduler: the descriptor does
// not block, and the thread belongs to its NIC.
func rawRW(trap uintptr, fd int, iov *unix.Iovec, n int) (int, unix.Errno) {
	for {
		r, _, e := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(iov)), uintptr(n))
		if e != unix.EINTR {
			return int(r), e
		}
	}
}
