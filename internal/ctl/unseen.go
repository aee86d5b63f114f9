package ctl

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/base/fault"
)

// unmatched explains why no packet matched a rule on an interface that has received rx and sent tx RoCEv2 frames.
func unmatched(name string, dir fault.Dir, rx, tx uint64) string {
	switch {
	case rx+tx == 0:
		return fmt.Sprintf("0 packets matched: %s neither sent nor received RoCEv2 frames", name)
	case dir == fault.Tx && tx == 0:
		return fmt.Sprintf("0 packets matched: %s sent no RoCEv2 frames, its peer did (%d received)", name, rx)
	case dir == fault.Rx && rx == 0:
		return fmt.Sprintf("0 packets matched: %s received no RoCEv2 frames, it sent %d", name, tx)
	}
	return fmt.Sprintf("0 packets matched: no frame has all conditions of the rule; %s sent %d RoCEv2 frames and received %d", name, tx, rx)
}

// unseen lists the frames of an interface that fault rules do not reach.
func unseen(name string, rules []fault.RuleStats) ([]string, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	out := []string{
		"RoCEv2 in tunnels, behind two VLAN tags or IPv6 extension headers, in IP fragments, and of a network card's own RDMA",
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		out = append(out, fmt.Sprintf("frames that the XDP program of %s takes, and frames of AF_XDP sockets", name))
	}
	receives := slices.ContainsFunc(rules, func(r fault.RuleStats) bool { return r.Rule.Dir != fault.Tx })
	if n := packetSockets(l.Attrs().Index); receives && n > 0 {
		out = append(out, fmt.Sprintf("frames that %d packet sockets receive (roced's packet port, captures): they get each frame before the rx rules do", n))
	}
	return out, nil
}

// packetSockets returns the number of AF_PACKET sockets of the calling thread's network namespace that receive all frames of
// an interface. It is 0 if /proc does not tell.
func packetSockets(index int) (n int) {
	f, err := os.Open("/proc/thread-self/net/packet")
	if err != nil {
		return 0
	}
	defer f.Close()
	const allFrames, proto, iface = "0003", 3, 4 // ETH_P_ALL, and columns
	for s := bufio.NewScanner(f); s.Scan(); {
		c := strings.Fields(s.Text())
		if len(c) > iface && c[proto] == allFrames && (c[iface] == "0" || c[iface] == strconv.Itoa(index)) {
			n++
		}
	}
	return n
}
