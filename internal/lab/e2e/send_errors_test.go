package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

// firewall makes the kernel of host 0 refuse (EPERM) packets to the RoCEv2 port, or accept them again.
func (l *rig) firewall(rules string) {
	l.T.Helper()
	lab.Must(l.T, l.Bed.NS[0].Run(exec.Command("nft", rules)))
}

// route gives the route to the peer an MTU below the interface's. 0 restores the interface's MTU.
func (l *rig) route(mtu int) {
	l.onLink(0, veth, func(dev netlink.Link) error {
		_, dst, err := net.ParseCIDR("198.18.0.2/32")
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: dst, MTU: mtu, MTULock: mtu != 0, Scope: unix.RT_SCOPE_LINK})
	})
}

// narrow changes the MTU of the interface. Packets of queue pairs with a larger path MTU are too long (EMSGSIZE).
func (l *rig) narrow(mtu int) {
	l.onLink(0, veth, func(dev netlink.Link) error { return netlink.LinkSetMTU(dev, mtu) })
}

// TestRouteMTU: the active MTU of a NIC on sockets follows the MTU that a route has, such as that of a tunnel.
func TestRouteMTU(t *testing.T) {
	l := newLab(t, onUDP)
	for _, c := range []struct{ route, want int }{{1400, 1024}, {0, 4096}} {
		l.route(c.route)
		lab.Eventually(t, soon, fmt.Sprint("active MTU ", c.want), func() bool { return l.Link(0).ActiveMTU == c.want })
	}
	l.verify("write-bw -n 1")
}

// slow adds or removes a queue in front of the interface that is nearly always full (ENOBUFS).
func (l *rig) slow(change func(netlink.Qdisc) error) {
	l.onLink(0, veth, func(dev netlink.Link) error {
		return change(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       8 << 20, Buffer: 1 << 20, Limit: 200_000,
		})
	})
}

// disturbance makes the kernel refuse packets of a UDP port.
type disturbance struct {
	name       string
	begin, end func(l *rig)
	told       string // expected in the mode of `rocectl link show`
	counted    string // the loss that it shows instead if the NIC notices before it sends
	moves      bool   // data move, possibly slowly
}

var disturbances = []disturbance{
	{"EPERM", func(l *rig) {
		l.firewall("add table ip t; add chain ip t o { type filter hook output priority 0; }; add rule ip t o udp dport 4791 drop")
	}, func(l *rig) { l.firewall("delete table ip t") }, "a firewall of this host forbids UDP to 198.18.0.2", "", false},
	{"EMSGSIZE", func(l *rig) { l.narrow(1400) }, func(l *rig) { l.narrow(namespace.MTU) }, "too long for the path to 198.18.0.2", "tx_dropped_mtu", false},
	{"ENOBUFS", func(l *rig) { l.slow(netlink.QdiscAdd) }, func(l *rig) { l.slow(netlink.QdiscDel) }, "", "", true},
	{"address", func(l *rig) { l.addr(0, netlink.AddrDel, "198.18.0.1/24") }, func(l *rig) { l.addr(0, netlink.AddrAdd, "198.18.0.1/24") }, "", "", false},
}

// TestUnsent makes the kernel refuse packets of a NIC on sockets. The port reports it, and every work request
// completes. It completes with success if the refusal ends in time, else with the error for a peer without answers.
// Later transfers work.
func TestUnsent(t *testing.T) {
	lab.Long(t)
	lab.Need(t, "nft")
	l := newLab(t, onUDP)
	for _, d := range disturbances {
		t.Run(d.name+" for a while", func(t *testing.T) {
			l := l.at(t)
			_, client := l.moving(tolerantOptions...)
			d.begin(l)
			l.notices(d)
			d.end(l)
			l.progresses(client, "data that moves again")
			client.Signal(syscall.SIGKILL)
			l.serves()
		})
		if d.moves {
			continue
		}
		t.Run(d.name+" for good", func(t *testing.T) {
			l := l.at(t)
			_, client := l.moving("write-bw", "-s", "64k", "--timeout", "10", "--retry-cnt", "2")
			d.begin(l)
			client.Fails(soon, "retry")
			d.end(l)
			l.serves()
		})
	}
}

// TestSendToClosedPort: the kernel of a peer without a daemon answers by ICMP (ECONNREFUSED), and the port reports it.
func TestSendToClosedPort(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onUDP)
	// Long enough that the NIC still sends packets when the kernel has closed the daemon's sockets.
	server, client := l.moving("write-bw", "--timeout", "14", "--retry-cnt", "7")
	server.Signal(syscall.SIGSTOP)
	l.Host[1].Stop(os.Kill)
	client.Fails(soon, "retry")
	l.tells("198.18.0.2 refuses UDP port 4791")
	server.Signal(syscall.SIGKILL)
	lab.Must(t, l.Host[1].Start(lab.Bin))
	l.serves()
}

// TestTranslated adds a NAT that changes the source address of a NIC on sockets. The peer drops the packets because of
// their ICRC, and reports the reason.
func TestTranslated(t *testing.T) {
	lab.Long(t)
	lab.Need(t, "nft")
	l := newLab(t, onUDP)
	l.addr(0, netlink.AddrAdd, "198.18.0.77/24")
	l.firewall("add table ip t; add chain ip t p { type nat hook postrouting priority 100; }; add rule ip t p udp dport 4791 snat to 198.18.0.77")
	_, client := l.pair("write-bw", "-s", "64k", "-n", "16", "--timeout", "12", "--retry-cnt", "4")
	client.Fails(soon, "retry")
	text, err := os.ReadFile(l.Host[1].LogFile)
	lab.Must(t, err)
	const said = "address translation (NAT) on the way, which RoCEv2 cannot pass"
	told := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return !strings.Contains(line, said) })
	if len(told) != 1 || !strings.Contains(told[0], "src=198.18.0.77") || !strings.Contains(told[0], "sent_from=198.18.0.1 ") {
		t.Errorf("the peer's log: %q", told)
	}
	l.firewall("delete table ip t")
}

// tells waits until the mode of host 0's port contains a text.
func (l *rig) tells(what string) { l.notices(disturbance{told: what}) }

// notices waits until the port reports a disturbance, or the NIC counts packets that it has not given to the port.
func (l *rig) notices(d disturbance) {
	l.T.Helper()
	lab.Eventually(l.T, soon, "a mode that says: "+d.told, func() bool {
		shown := l.Link(0)
		return strings.Contains(shown.Mode, d.told) ||
			slices.ContainsFunc(shown.Losses, func(o api.Loss) bool { return o.Counter == d.counted && o.Frames > 0 })
	})
}

// TestFilteredFlow: a filter of the host drops one connection, which the kernel tells the sender. Others proceed, and the
// connection works when the filter has gone.
func TestFilteredFlow(t *testing.T) {
	lab.Long(t)
	lab.Need(t, "nft")
	for _, kind := range []string{"udp", "packet"} {
		t.Run(kind, func(t *testing.T) {
			l := newLab(t, netlab.LabOptions{Shared: [2]string{kind, kind}})
			l.verify("write-bw -n 1 --gid-index " + ipv6)
			l.firewall("add table netdev t; add chain netdev t e { type filter hook egress device " + veth + " priority 0; }; " +
				"add rule netdev t e meta protocol ip6 drop")
			_, client := l.pair(append(slices.Clone(tolerantOptions), "-n", "64", "--gid-index", ipv6)...)
			lab.Eventually(t, soon, "lost frames", func() bool { return lab.Query[[]api.Stat](l.Lab, 0, "stat")[0].Port.SendDropped > 0 })
			l.verify("write-bw -s 64k -n 40")
			l.verify("read-bw -s 64k -n 40")
			l.firewall("delete table netdev t")
			if code := client.Exit(lab.Limit); code != 0 {
				t.Errorf("without the filter: exit code %d: %s", code, &client.Diag)
			}
		})
	}
}
