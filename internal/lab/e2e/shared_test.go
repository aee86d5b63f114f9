package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// veth is the interface that a NIC shares with the kernel, in each namespace.
const veth = netlab.Veth

// onBoth runs a test with NICs that share their interfaces with the kernel, over each type of port.
func onBoth(t *testing.T, test func(l *rig)) { onBothWith(t, "", test) }

// onBothWith is onBoth with additional configuration.
func onBothWith(t *testing.T, extra string, test func(l *rig)) {
	for _, kind := range []string{"packet", "udp", "xdp"} {
		t.Run(kind, func(t *testing.T) {
			test(newLab(t, netlab.LabOptions{Shared: [2]string{kind, kind}, Extra: extra}))
		})
	}
}

// TestSharedPorts moves data between NICs on ports of each type.
func TestSharedPorts(t *testing.T) {
	lab.Long(t)
	for _, kinds := range [][2]string{{"packet", "packet"}, {"packet", ""}, {"packet", "xdp"}, {"udp", "udp"}, {"udp", "packet"}, {"udp", ""}, {"udp", "xdp"}} {
		t.Run(strings.TrimSpace(kinds[0]+" "+kinds[1]), func(t *testing.T) {
			l := newLab(t, netlab.LabOptions{Shared: kinds})
			l.serves()
			l.verify("read-bw -s 64k -n 8")
			l.verify("send-bw -c ud -s 1k -n 8")
			l.verify("write-bw -s 64k -n 8 --gid-index " + ipv6)
			if i := l.gid(0, "198.18.0.1"); i != 0 || l.gid(1, "198.18.0.2") != i {
				t.Errorf("GIDs %v and %v", l.Link(0).GIDs, l.Link(1).GIDs)
			}
			if link := l.Link(0); link.Port != kinds[0] || link.Device != veth || link.Mode == "" || link.ActiveMTU != 4096 {
				t.Errorf("%+v", link)
			}
		})
	}
}

// ipv6 is a placeholder in roceperf's arguments for the index of a NIC's IPv6 address.
const ipv6 = "IPV6"

// gid returns the index of an address in the GID table of host i, -1 if it is not there.
func (l *rig) gid(i int, addr string) int { return slices.Index(l.Link(i).GIDs, addr) }

// addr adds an address to the interface of host i, or removes it.
func (l *rig) addr(i int, change func(netlink.Link, *netlink.Addr) error, text string) {
	l.T.Helper()
	a, err := netlink.ParseAddr(text)
	lab.Must(l.T, err)
	a.Flags = unix.IFA_F_NODAD
	l.onLink(i, veth, func(dev netlink.Link) error { return change(dev, a) })
}

// TestSharedAddresses adds and removes addresses. The GID table follows, and an address that returns has its index
// again.
func TestSharedAddresses(t *testing.T) {
	onBoth(t, func(l *rig) {
		t := l.T
		events := l.follow(0)
		for i := range 2 { // a late link-local GID would take the index on one side only
			lab.Eventually(t, soon, "a link-local GID", func() bool {
				return slices.ContainsFunc(l.Link(i).GIDs, func(gid string) bool { return strings.HasPrefix(gid, "fe80::") })
			})
		}
		const added, second = "198.18.0.77", "fd00::77"
		l.addr(0, netlink.AddrAdd, added+"/24")
		l.addr(1, netlink.AddrAdd, "198.18.0.78/24")
		lab.Eventually(t, soon, "a GID of the new address", func() bool { return l.gid(0, added) >= 0 })
		index := l.gid(0, added)
		l.addr(0, netlink.AddrAdd, second+"/64")
		lab.Eventually(t, soon, "a GID of the second address", func() bool { return l.gid(0, second) >= 0 })
		lab.Eventually(t, soon, "the peer's GID", func() bool { return l.gid(1, "198.18.0.78") == index })
		l.verify("write-bw -s 64k -n 4 --gid-index " + strconv.Itoa(index))
		if !strings.Contains(events(), "gid_change") {
			t.Errorf("events: %q", events())
		}
		shown := func() string { // the address file appears later than the GID
			text, err := os.ReadFile(filepath.Join(l.Host[0].RunDir, "sysfs/class/infiniband", netlab.Device, "ports/1/gids", strconv.Itoa(index)))
			if !errors.Is(err, fs.ErrNotExist) {
				lab.Must(t, err)
			}
			return strings.TrimSpace(string(text))
		}
		lab.Eventually(t, soon, "the GID in sysfs", func() bool { return strings.HasSuffix(shown(), ":ffff:c612:004d") })
		l.addr(0, netlink.AddrDel, added+"/24")
		lab.Eventually(t, soon, "no GID of the old address", func() bool { return l.gid(0, added) < 0 })
		lab.Eventually(t, soon, "none in sysfs", func() bool { return strings.Trim(shown(), "0:") == "" })
		l.serves()
		l.addr(0, netlink.AddrAdd, added+"/24")
		lab.Eventually(t, soon, "the GID at its place", func() bool { return l.gid(0, added) == index })
		l.verify("send-bw -n 4 --gid-index " + strconv.Itoa(index))
	})
}

// progresses checks that a client's data keep moving.
func (l *rig) progresses(client *lab.Proc, what string) {
	l.T.Helper()
	start := l.counters(1)["rcvd_pkts"]
	lab.Eventually(l.T, lab.Limit, what, func() bool {
		if !client.Running() {
			l.T.Fatalf("%s: the client has failed: %s", what, &client.Diag)
		}
		return l.counters(1)["rcvd_pkts"] > start+100
	})
}

// tolerantOptions are options of a transfer that survives interruptions of half a minute.
var tolerantOptions = []string{"write-bw", "-s", "64k", "--timeout", "20", "--retry-cnt", "7"}

// TestSharedMTU changes the MTU of the interface: the path MTU follows.
func TestSharedMTU(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		t := l.T
		events := l.follow(0)
		set := func(mtu int) {
			for i := range 2 {
				l.onLink(i, veth, func(dev netlink.Link) error { return netlink.LinkSetMTU(dev, mtu) })
			}
		}
		for _, c := range []struct{ mtu, active int }{{1500, 1024}, {9000, 4096}, {3000, 2048}} {
			set(c.mtu)
			lab.Eventually(t, soon, fmt.Sprintf("path MTU %d", c.active), func() bool {
				return l.Link(0).ActiveMTU == c.active && l.Link(1).ActiveMTU == c.active
			})
			l.serves()
		}
		mtu := 1500
		lab.Eventually(t, soon, "an event", func() bool { // rocectl may not have been listening before
			set(mtu)
			mtu = 10500 - mtu
			return strings.Contains(events(), "port_active")
		})
	})
}

// TestSharedDownUp sets the interface down during a transfer.
func TestSharedDownUp(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		t := l.T
		events := l.follow(0)
		_, client := l.moving(tolerantOptions...)
		l.onLink(0, veth, netlink.LinkSetDown)
		lab.Eventually(t, soon, "a link that is down for a reason", func() bool {
			link := l.Link(0)
			return link.State == "DOWN" && strings.Contains(link.Reason, "down")
		})
		l.onLink(0, veth, netlink.LinkSetUp)
		l.progresses(client, "data that moves again")
		if got := events(); !strings.Contains(got, "port_error") || !strings.Contains(got, "port_active") {
			t.Errorf("events: %q", got)
		}
	})
}

// TestSharedNeighbourMoves gives the peer another MAC address during a transfer. Both NICs follow: the peer's own NIC,
// and ours by the kernel's neighbour table.
func TestSharedNeighbourMoves(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		_, client := l.moving(tolerantOptions...)
		const moved = "02:00:00:00:77:01"
		mac, err := net.ParseMAC(moved)
		lab.Must(l.T, err)
		l.onLink(1, veth, func(dev netlink.Link) error { return netlink.LinkSetHardwareAddr(dev, mac) })
		if l.Link(1).Port != "udp" { // a NIC on UDP sockets has no visible MAC address
			lab.Eventually(l.T, soon, "the MAC of the NIC", func() bool { return l.Link(1).MAC == moved })
		}
		l.progresses(client, "data that moves to the other MAC")
	})
}

// TestSharedRouteChanges sends over a gateway, changes the route to an unreachable gateway, and back.
func TestSharedRouteChanges(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		t := l.T
		const far, near = "198.19.0.2", "198.19.1.1"
		l.addr(1, netlink.AddrAdd, far+"/32")
		l.addr(0, netlink.AddrAdd, near+"/32")
		via := func(i int, dst, gw string) {
			_, net32, err := net.ParseCIDR(dst)
			lab.Must(t, err)
			l.onLink(i, veth, func(dev netlink.Link) error {
				return netlink.RouteReplace(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: net32, Gw: net.ParseIP(gw)})
			})
		}
		via(0, "198.19.0.0/24", "198.18.0.2")
		via(1, "198.19.1.0/24", "198.18.0.1")
		nobody := netlink.Neigh{IP: net.ParseIP("198.18.0.66"), State: unix.NUD_PERMANENT,
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x66}}
		l.onLink(0, veth, func(dev netlink.Link) error {
			nobody.LinkIndex = dev.Attrs().Index
			return netlink.NeighSet(&nobody)
		})
		lab.Eventually(t, soon, "the addresses", func() bool { return l.gid(0, near) >= 0 && l.gid(0, near) == l.gid(1, far) })
		_, client := l.moving(append(slices.Clone(tolerantOptions), "--gid-index", strconv.Itoa(l.gid(0, near)))...)
		via(0, "198.19.0.0/24", "198.18.0.66")
		last := uint64(0)
		lab.Eventually(t, soon, "that nothing arrives over the wrong gateway", func() bool {
			was := last
			last = l.counters(1)["rcvd_pkts"]
			return was == last
		})
		via(0, "198.19.0.0/24", "198.18.0.2")
		l.progresses(client, "data that moves over the right gateway")
	})
}

// TestSharedInterfaceAnew deletes the interfaces of both NICs during a transfer and creates them again, with other MAC
// addresses and indices. Opening a port on them needs privileges.
func TestSharedInterfaceAnew(t *testing.T) {
	lab.Long(t)
	onBothWith(t, "privileges: keep\n", func(l *rig) {
		t := l.T
		_, client := l.moving(tolerantOptions...)
		mac := l.Link(0).MAC
		l.onLink(0, veth, netlink.LinkDel)
		for i := range 2 {
			lab.Eventually(t, soon, "a link that is down for a reason", func() bool {
				link := l.Link(i)
				return link.State == "DOWN" && strings.Contains(link.Reason, veth)
			})
		}
		lab.Must(t, l.Bed.Wire())
		lab.Eventually(t, soon, "another MAC", func() bool {
			link := l.Link(0)
			return link.State == "ACTIVE" && (link.MAC != mac || link.Port == "udp")
		})
		l.progresses(client, "data that moves over the new interface")
		l.serves()
		if l.refused(4791) {
			t.Error("the kernel answers RoCE frames with ICMP errors")
		}
	})
}

// TestSharedWithTCP runs the kernel's TCP traffic over the same interface.
func TestSharedWithTCP(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		t := l.T
		_, client := l.moving("write-bw", "-s", "64k")
		var ln net.Listener
		lab.Must(t, l.Bed.NS[1].Do(func() (err error) {
			ln, err = net.Listen("tcp", net.JoinHostPort(netlab.HostAddr(1), "0"))
			return err
		}))
		defer ln.Close()
		echo := make(chan error, 1)
		go func() {
			c, err := ln.Accept()
			if err == nil {
				_, err = io.Copy(c, c)
				c.Close()
			}
			echo <- err
		}()
		var c net.Conn
		lab.Must(t, l.Bed.NS[0].Do(func() (err error) {
			c, err = net.DialTimeout("tcp", ln.Addr().String(), lab.Limit)
			return err
		}))
		defer c.Close()
		block, back := []byte(strings.Repeat("undisturbed ", 1000)), make([]byte, 12000)
		for range 200 {
			_, err := c.Write(block)
			lab.Must(t, err)
			_, err = io.ReadFull(c, back)
			lab.Must(t, err)
			if string(back) != string(block) {
				t.Fatal("TCP data has changed on the way")
			}
		}
		c.Close()
		lab.Must(t, <-echo)
		l.progresses(client, "RoCE beside TCP")
	})
}

// refused reports whether the kernel of host 1 answers a datagram to the port with ICMP port unreachable.
func (l *rig) refused(port int) (refused bool) {
	l.T.Helper()
	lab.Must(l.T, l.Bed.NS[0].Do(func() error {
		c, err := net.Dial("udp", net.JoinHostPort(l.Host[1].Addr, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, 64))
		for range 20 { // the answer arrives within the call, if at all
			if err != nil {
				break
			}
			_, err = c.Write(make([]byte, 64))
		}
		refused = errors.Is(err, syscall.ECONNREFUSED)
		if refused {
			err = nil
		}
		return err
	}))
	return refused
}

// TestSharedPortIsNotRefused checks that the kernel does not answer packets to the RoCEv2 port with ICMP port
// unreachable. It checks that the kernel does so again after the daemon has been killed.
func TestSharedPortIsNotRefused(t *testing.T) {
	lab.Long(t)
	onBoth(t, func(l *rig) {
		t := l.T
		lab.Eventually(t, soon, "ICMP at all", func() bool { return l.refused(4790) })
		if l.refused(4791) {
			t.Error("the kernel answers RoCE frames with ICMP errors")
		}
		if err := l.Host[1].Stop(os.Kill); err == nil {
			t.Error("killed, but no error")
		}
		lab.Eventually(t, soon, "ICMP when the NIC is gone", func() bool { return l.refused(4791) })
		lab.Must(t, l.Host[1].Start(lab.Bin))
		l.serves()
	})
}
