package netlab

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/lab/namespace"
)

// PlaneSwitch returns the name of the bridge of plane p between the hosts, in namespace Bed.Middle.
func PlaneSwitch(p int) string { return fmt.Sprintf("m%d", p) }

// PlaneDevice returns the name of the interface of each host in plane p.
func PlaneDevice(p int) string { return fmt.Sprintf("e%d", p) }

// planeBridge returns the name of the bridge of a host without direct interfaces in plane p.
func planeBridge(p int) string { return fmt.Sprintf("p%d", p) }

// AddPlanes adds networks that are not connected, for NICs with several ports. In each of them a switch connects the hosts,
// so that neither host sees whether the link of the other one is up:
//
//	namespace 0: e0 ===== (Middle: bridge m0) ===== e0 :namespace 1
//
// The interfaces of a host that direct selects have the addresses of the NIC, and the same Ethernet address. Others belong to
// bridges p0, p1 and so on.
func (b *Bed) AddPlanes(n int, direct [2]bool) (err error) {
	if b.Middle, err = namespace.New(); err != nil {
		return err
	}
	for p := range n {
		if err := b.addPlane(p, direct); err != nil {
			return fmt.Errorf("netlab: plane %d: %w", p, err)
		}
	}
	return nil
}

func (b *Bed) addPlane(p int, direct [2]bool) error {
	dev := PlaneDevice(p)
	for i, n := range b.NS {
		if err := n.Join(dev, b.Middle, fmt.Sprintf("h%d%s", i, dev)); err != nil {
			return err
		}
	}
	err := b.Middle.Do(func() error {
		return errors.Join(namespace.AddBridge(PlaneSwitch(p)), namespace.Enslave("h0"+dev, PlaneSwitch(p)), namespace.Enslave("h1"+dev, PlaneSwitch(p)))
	})
	for i, n := range b.NS {
		err = errors.Join(err, n.Do(func() error {
			if !direct[i] {
				return errors.Join(namespace.AddBridge(planeBridge(p)), namespace.Enslave(dev, planeBridge(p)))
			}
			same := func(l netlink.Link) error {
				return netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 1, byte(i + 1)})
			}
			return errors.Join(namespace.Change(dev, same), namespace.AddAddr(dev, nicAddrs(i)[1]), namespace.AddAddr(dev, nicAddrs(i)[0]))
		}))
	}
	return err
}
