// Package netlab makes the two-namespace network in which the demo, the
// benchmarks and the end-to-end tests run:
//
//	namespace 0: [TAP of a NIC] - bridge br0 - veth v0 ===== veth v0 - bridge br0 - [TAP of a NIC] :namespace 1
//
// A namespace may do without bridge and TAP: its veth is for a NIC that shares it with
// the kernel then.
//
// The namespaces have no names in /run/netns: they live as long as a process
// holds them, so nothing is left behind however the process ends. Root is not
// needed inside a user namespace (see InUserNamespace).
package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Names of the devices inside each namespace.
const (
	Bridge = "br0"
	Veth   = "v0"
)

// MTU of bridge and veth: room for path MTU 4096.
const MTU = 9000

// Namespace is one of the two hosts.
type Namespace struct {
	// Addr is the address of the host itself (its bridge), for TCP programs; a
	// NIC in the namespace has one of its own.
	Addr   net.IP
	handle netns.NsHandle
	direct bool // no bridge
}

// Path names the namespace for other processes while this one runs.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle))
}

// Do runs f on an OS thread inside the namespace.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(n.handle); err != nil {
			done <- fmt.Errorf("enter namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Run runs a command inside the namespace.
func (n *Namespace) Run(c *exec.Cmd) error {
	if err := n.Start(c); err != nil {
		return err
	}
	return c.Wait()
}

// Bed is the pair of namespaces.
type Bed struct {
	NS [2]*Namespace
}

// New builds the network. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
func New() (*Bed, error) { return NewDirect([2]bool{}) }

// NewDirect is New with no bridge where direct says so. A veth without bridge has the
// addresses that the NIC of the namespace has else.
func NewDirect(direct [2]bool) (*Bed, error) {
	b := &Bed{}
	for i := range b.NS {
		h, err := newNamespace()
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("testbed: new network namespace: %w", err)
		}
		b.NS[i] = &Namespace{Addr: net.IPv4(198, 18, 1, byte(i+1)), handle: h, direct: direct[i]}
	}
	if err := b.Wire(); err != nil {
		b.Close()
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return b, nil
}

// Close gives the namespaces up; their devices go with them.
func (b *Bed) Close() error {
	var errs []error
	for _, n := range b.NS {
		if n != nil {
			errs = append(errs, n.handle.Close())
		}
	}
	return errors.Join(errs...)
}

func newNamespace() (netns.NsHandle, error) {
	type result struct {
		h   netns.NsHandle
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		h, err := netns.New()
		done <- result{h, err}
	}()
	r := <-done
	return r.h, r.err
}

// Wire joins the namespaces. A new bed is joined; it can be done again, without bridges,
// when a veth has been deleted.
func (b *Bed) Wire() error {
	err := b.NS[0].Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: Veth, MTU: MTU},
			PeerName:      Veth,
			PeerNamespace: netlink.NsFd(int(b.NS[1].handle)),
		})
	})
	if err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for i, n := range b.NS {
		setUp := func() error { return setUp(n.Addr) }
		if n.direct {
			setUp = func() error { return setUpDirect(n.Addr, i) }
		}
		if err := n.Do(setUp); err != nil {
			return err
		}
	}
	return nil
}

// Ready waits until all that is attached to the bridges passes frames: the kernel looks at
// carriers once a second, and a port that has not come up yet drops what it is given.
func (b *Bed) Ready() error {
	for _, n := range b.NS {
		if err := n.Do(portsUp); err != nil {
			return fmt.Errorf("testbed: %w", err)
		}
	}
	return nil
}

func portsUp() error {
	down := ""
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex != 0 && !forwards(l.Attrs().OperState) })
		if i < 0 {
			return nil
		}
		down = links[i].Attrs().Name
	}
	return fmt.Errorf("%s is not up after 10 s", down)
}

// forwards says whether a bridge uses a port; of a TAP the state stays unknown.
func forwards(s netlink.LinkOperState) bool {
	return s == netlink.OperUp || s == netlink.OperUnknown
}

// setUp makes the bridge of one namespace and joins its veth to it.
func setUp(addr net.IP) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	snooping := false
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: Bridge, MTU: MTU}, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	v, err := netlink.LinkByName(Veth)
	if err != nil {
		return err
	}
	for _, err := range []error{
		netlink.LinkSetMTU(v, MTU),
		netlink.LinkSetMaster(v, br),
		netlink.AddrAdd(br, &netlink.Addr{IPNet: &net.IPNet{IP: addr, Mask: net.CIDRMask(24, 32)}}),
		netlink.LinkSetUp(lo), netlink.LinkSetUp(v), netlink.LinkSetUp(br),
	} {
		if err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
	}
	return nil
}

// nicAddrs are the addresses of the NIC in namespace i.
func nicAddrs(i int) [2]string {
	return [2]string{fmt.Sprintf("198.18.0.%d/24", i+1), fmt.Sprintf("fd00::%d/64", i+1)}
}

// setUpDirect prepares a veth that a NIC is to share with the kernel.
func setUpDirect(addr net.IP, i int) error {
	v, err := netlink.LinkByName(Veth)
	if err != nil {
		return err
	}
	addrs := []*netlink.Addr{{IPNet: &net.IPNet{IP: addr, Mask: net.CIDRMask(24, 32)}}}
	for _, text := range nicAddrs(i) {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		addrs = append([]*netlink.Addr{a}, addrs...)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, l := range []netlink.Link{lo, v} {
		if err := errors.Join(netlink.LinkSetMTU(v, MTU), netlink.LinkSetUp(l)); err != nil {
			return fmt.Errorf("veth: %w", err)
		}
	}
	for _, a := range addrs {
		if err := netlink.AddrAdd(v, a); err != nil {
			return fmt.Errorf("veth: address %v: %w", a, err)
		}
	}
	return nil
}
