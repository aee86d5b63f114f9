// Package netlab makes networks of namespaces, and starts daemons and programs in them, for the demo, the benchmarks and the
// end-to-end tests. A Bed has two namespaces:
//
//	namespace 0: [TAP of a NIC] - bridge br0 - veth v0 ===== veth v0 - bridge br0 - [TAP of a NIC] :namespace 1
//
// A direct namespace has neither bridge nor TAP. Its NIC shares the veth with the kernel.
package netlab

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/lab/namespace"
)

// Names of the devices in each namespace of a Bed.
const (
	Bridge = "br0"
	Veth   = "v0"
)

// Bed is a pair of connected namespaces.
type Bed struct {
	NS     [2]*namespace.Namespace
	Middle *namespace.Namespace // has the switches of planes; nil without planes
	direct [2]bool              // namespaces without a bridge
}

// New makes a network with bridges. It needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
func New() (*Bed, error) { return NewDirect([2]bool{}) }

// NewDirect makes a network without bridges in the namespaces that direct selects. The veth of a direct namespace has the
// addresses of the NIC.
func NewDirect(direct [2]bool) (*Bed, error) {
	b := &Bed{direct: direct}
	for i := range b.NS {
		n, err := namespace.New()
		if err != nil {
			b.Close()
			return nil, err
		}
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
	for _, n := range []*namespace.Namespace{b.NS[0], b.NS[1], b.Middle} {
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
		host := HostAddr(i) + "/24"
		setUp := func() error { return setUpBridged(host) }
		if b.direct[i] {
			setUp = func() error {
				return errors.Join(namespace.SetUp("lo"), namespace.SetUp(Veth), namespace.AddAddr(Veth, nicAddrs(i)[1]), namespace.AddAddr(Veth, nicAddrs(i)[0]), namespace.AddAddr(Veth, host))
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
	return errors.Join(namespace.AddBridge(Bridge), namespace.Enslave(Veth, Bridge), namespace.AddAddr(Bridge, addr), namespace.SetUp("lo"))
}

// HostAddr returns the address of the host in namespace i itself, for TCP programs. It belongs to the bridge or to the veth
// of a direct namespace. The NIC in the namespace has other addresses.
func HostAddr(i int) string { return fmt.Sprintf("198.18.1.%d", i+1) }

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
