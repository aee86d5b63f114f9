// Package netlab makes networks of namespaces, and starts daemons and programs in them, for the demo, the benchmarks, the
// end-to-end tests and rocectl lab. A Bed has two namespaces:
//
//	namespace 0: [TAP of a NIC] - bridge br0 - veth v0 ===== veth v0 - bridge br0 - [TAP of a NIC] :namespace 1
//
// A direct namespace has neither bridge nor TAP. Its NIC shares the veth with the kernel.
//
// The namespaces have no names in /run/netns. They exist as long as a process refers to them, so that nothing remains
// however the process ends. InUserNamespace makes root privileges unnecessary.
package netlab

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// Names of the devices in each namespace of a Bed.
const (
	Bridge = "br0"
	Veth   = "v0"
)

// MTU is the MTU of bridges and veths. It has room for path MTU 4096.
const MTU = 9000

// Bed is a pair of connected namespaces.
type Bed struct {
	NS     [2]*Namespace
	Middle *Namespace // has the switches of planes; nil without planes
}

// New makes a network with bridges. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
func New() (*Bed, error) { return NewDirect([2]bool{}) }

// NewDirect makes a network without bridges in the namespaces that direct selects. The veth of a direct namespace has the
// addresses of the NIC.
func NewDirect(direct [2]bool) (*Bed, error) {
	b := &Bed{}
	for i := range b.NS {
		n, err := NewNamespace()
		if err != nil {
			b.Close()
			return nil, err
		}
		n.Addr, n.direct = net.IPv4(198, 18, 1, byte(i+1)), direct[i]
		b.NS[i] = n
	}
	if err := b.Wire(); err != nil {
		b.Close()
		return nil, fmt.Errorf("netlab: %w", err)
	}
	return b, nil
}

// Close releases the namespaces. The kernel deletes their devices with them.
func (b *Bed) Close() error {
	var errs []error
	for _, n := range []*Namespace{b.NS[0], b.NS[1], b.Middle} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// Wire connects the namespaces. NewDirect calls it; a caller that has deleted the veth of direct namespaces can call it
// again.
func (b *Bed) Wire() error {
	if err := b.NS[0].Join(Veth, b.NS[1], Veth); err != nil {
		return err
	}
	for i, n := range b.NS {
		host := n.Addr.String() + "/24"
		setUp := func() error { return setUpBridged(host) }
		if n.direct {
			setUp = func() error {
				return errors.Join(SetUp("lo"), SetUp(Veth), AddAddr(Veth, nicAddrs(i)[1]), AddAddr(Veth, nicAddrs(i)[0]), AddAddr(Veth, host))
			}
		}
		if err := n.Do(setUp); err != nil {
			return err
		}
	}
	return nil
}

// setUpBridged makes the bridge of a namespace and adds the veth to it. addr is the address of the bridge.
func setUpBridged(addr string) error {
	return errors.Join(addBridge(Bridge), Enslave(Veth, Bridge), AddAddr(Bridge, addr), SetUp("lo"))
}

// nicAddrs returns the addresses of the NIC in namespace i.
func nicAddrs(i int) [2]string {
	return [2]string{fmt.Sprintf("198.18.0.%d/24", i+1), fmt.Sprintf("fd00::%d/64", i+1)}
}

// Ready waits until all bridge ports forward frames. The kernel checks carriers once a second, and a port that is not up
// yet drops frames.
func (b *Bed) Ready() error {
	for _, n := range b.NS {
		if err := n.Do(portsUp); err != nil {
			return fmt.Errorf("netlab: %w", err)
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

// forwards reports whether a bridge port in this state forwards frames. The state of a TAP is always unknown.
func forwards(s netlink.LinkOperState) bool {
	return s == netlink.OperUp || s == netlink.OperUnknown
}
