package cli

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/lab/namespace"
)

// The fabric. Leaves and spines are routers. Each leaf has a bridge for its hosts.
const (
	spines, leaves, hostsPerLeaf = 2, 2, 2

	bridge = "br0"  // of a leaf; its address is the gateway of the hosts
	uplink = "eth0" // of a host
)

// node is a host or a switch in its own namespace.
type node struct {
	name string
	ns   *namespace.Namespace
}

// fabric is a network that exists as long as the process that has made it.
type fabric struct {
	nodes  []*node
	links  []Link
	queues []*bottleneck.Attachment
}

// hostAddr returns the address of host i of a leaf; both count from 1, and i=254 is the leaf.
func hostAddr(leaf, i int) string { return fmt.Sprintf("198.18.%d.%d", leaf, i) }

// trunkAddr returns the address of a leaf (end 0) or a spine (end 1) on their link.
func trunkAddr(leaf, spine, end int) string {
	return fmt.Sprintf("198.19.%d.%d", leaf, 2*spine+end)
}

func hostName(leaf, i int) string { return fmt.Sprintf("h%d", (leaf-1)*hostsPerLeaf+i) }
func leafName(i int) string       { return fmt.Sprintf("leaf%d", i) }
func spineName(i int) string      { return fmt.Sprintf("spine%d", i) }

// build makes the fabric. With options, the links between leaves and spines have bottlenecks.
func build(o *bottleneck.Options) (_ *fabric, err error) {
	f := &fabric{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	for s := 1; s <= spines; s++ {
		if err := f.add(spineName(s), true); err != nil {
			return nil, err
		}
	}
	for l := 1; l <= leaves; l++ {
		if err := errors.Join(f.add(leafName(l), true), f.addBridge(l)); err != nil {
			return nil, err
		}
		for i := 1; i <= hostsPerLeaf; i++ {
			if err := f.addHost(l, i); err != nil {
				return nil, err
			}
		}
		for s := 1; s <= spines; s++ {
			if err := f.trunk(l, s, o); err != nil {
				return nil, err
			}
		}
	}
	for l := 1; l <= leaves; l++ {
		if err := f.routes(l); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// node returns the node with an existing name.
func (f *fabric) node(name string) *node {
	for _, n := range f.nodes {
		if n.name == name {
			return n
		}
	}
	panic("lab: no node " + name)
}

// add makes a namespace. A switch forwards packets, and selects paths by ports as well, as RoCEv2 needs. Packets may
// return on another path.
func (f *fabric) add(name string, forwards bool) error {
	ns, err := namespace.New()
	if err != nil {
		return err
	}
	f.nodes = append(f.nodes, &node{name, ns})
	return ns.Do(func() error {
		err := errors.Join(sysctl("conf/all/rp_filter", "0"), sysctl("conf/default/rp_filter", "0"))
		if forwards {
			err = errors.Join(err, sysctl("ip_forward", "1"), sysctl("fib_multipath_hash_policy", "1"))
		}
		return errors.Join(err, namespace.SetUp("lo"))
	})
}

// sysctl writes a setting of net.ipv4 in the calling thread's namespace.
func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0)
}

func (f *fabric) addBridge(leaf int) error {
	return f.node(leafName(leaf)).ns.Do(func() error {
		if err := namespace.AddBridge(bridge); err != nil {
			return err
		}
		return namespace.AddAddr(bridge, hostAddr(leaf, 254)+"/24")
	})
}

// addHost makes a host and connects it to the bridge of its leaf.
func (f *fabric) addHost(leaf, i int) error {
	name := hostName(leaf, i)
	if err := f.add(name, false); err != nil {
		return err
	}
	up, host := f.node(leafName(leaf)).ns, f.node(name).ns
	if err := up.Join(name, host, uplink); err != nil {
		return err
	}
	f.links = append(f.links, Link{A: leafName(leaf), B: name, AInterface: name, BInterface: uplink})
	if err := up.Do(func() error { return namespace.Enslave(name, bridge) }); err != nil {
		return err
	}
	return host.Do(func() error {
		if err := namespace.AddAddr(uplink, hostAddr(leaf, i)+"/24"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Gw: net.ParseIP(hostAddr(leaf, 254))})
	})
}

// trunk connects a leaf and a spine.
func (f *fabric) trunk(leaf, spine int, o *bottleneck.Options) error {
	a, b := f.node(leafName(leaf)), f.node(spineName(spine))
	if err := a.ns.Join(b.name, b.ns, a.name); err != nil {
		return err
	}
	link := Link{A: a.name, B: b.name, AInterface: b.name, BInterface: a.name}
	for end, at := range []struct {
		ns    *namespace.Namespace
		iface string
	}{{a.ns, b.name}, {b.ns, a.name}} {
		err := at.ns.Do(func() error {
			if err := namespace.AddAddr(at.iface, trunkAddr(leaf, spine, end)+"/31"); err != nil || o == nil {
				return err
			}
			q, err := bottleneck.Attach(at.iface, *o, attach.Auto)
			if err != nil {
				return fmt.Errorf("bottleneck: needs CAP_BPF, that is, root: %w", err)
			}
			f.queues = append(f.queues, q)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if o != nil {
		link.Rate = o.Rate
	}
	f.links = append(f.links, link)
	return nil
}

// routes adds the routes from a leaf over all spines to the other leaves, and from the spines to this leaf.
func (f *fabric) routes(leaf int) error {
	for s := 1; s <= spines; s++ {
		err := f.node(spineName(s)).ns.Do(func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: subnet(leaf), Gw: net.ParseIP(trunkAddr(leaf, s, 0))})
		})
		if err != nil {
			return fmt.Errorf("route of %s: %w", spineName(s), err)
		}
	}
	return f.node(leafName(leaf)).ns.Do(func() error {
		for other := 1; other <= leaves; other++ {
			if other == leaf {
				continue
			}
			r := &netlink.Route{Dst: subnet(other)}
			for s := 1; s <= spines; s++ {
				r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{Gw: net.ParseIP(trunkAddr(leaf, s, 1))})
			}
			if err := netlink.RouteAdd(r); err != nil {
				return fmt.Errorf("route of %s: %w", leafName(leaf), err)
			}
		}
		return nil
	})
}

func subnet(leaf int) *net.IPNet {
	return &net.IPNet{IP: net.ParseIP(hostAddr(leaf, 0)), Mask: net.CIDRMask(24, 32)}
}

func (f *fabric) close() error {
	var errs []error
	for _, q := range f.queues {
		errs = append(errs, q.Close())
	}
	for _, n := range f.nodes {
		errs = append(errs, n.ns.Close())
	}
	return errors.Join(errs...)
}
