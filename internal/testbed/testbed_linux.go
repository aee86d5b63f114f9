// Package testbed makes the two-namespace network in which the demo, the
// benchmarks and the end-to-end tests run:
//
//	namespace 0: [TAP of a NIC] - bridge br0 - veth v0 ===== veth v0 - bridge br0 - [TAP of a NIC] :namespace 1
//
// The namespaces have no names in /run/netns: they live as long as a process
// holds them, so nothing is left behind however the process ends. Root is not
// needed inside a user namespace (see InUserNamespace).
package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Names of the devices inside each namespace.
const (
	Bridge = "br0"
	veth   = "v0"
)

// MTU of bridge and veth: room for path MTU 4096.
const MTU = 9000

// Namespace is one of the two hosts.
type Namespace struct {
	// Addr is the address of the host itself (its bridge), for TCP programs; a
	// NIC in the namespace has one of its own.
	Addr   net.IP
	handle netns.NsHandle
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

// Start starts a command inside the namespace.
func (n *Namespace) Start(c *exec.Cmd) error { return n.Do(c.Start) }

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
func New() (*Bed, error) {
	b := &Bed{}
	for i := range b.NS {
		h, err := newNamespace()
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("testbed: new network namespace: %w", err)
		}
		b.NS[i] = &Namespace{Addr: net.IPv4(198, 18, 1, byte(i+1)), handle: h}
	}
	if err := b.wire(); err != nil {
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

func (b *Bed) wire() error {
	err := b.NS[0].Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: veth, MTU: MTU},
			PeerName:      veth,
			PeerNamespace: netlink.NsFd(int(b.NS[1].handle)),
		})
	})
	if err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for _, n := range b.NS {
		if err := n.Do(func() error { return setUp(n.Addr) }); err != nil {
			return err
		}
	}
	return nil
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
	v, err := netlink.LinkByName(veth)
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
