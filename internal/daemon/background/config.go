package background

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"roced.io/roced/bth"
)

// nicNames are the names of the NICs. A single NIC has the first name.
var nicNames = [2]string{"rxe_a", "rxe_b"}

// configuration returns the daemon's configuration file.
func (w *wish) configuration(dir string) (string, error) {
	nics, err := w.nics(dir)
	if err != nil {
		return "", err
	}
	folder := ""
	if w.captures != "" {
		if folder, err = filepath.Abs(w.captures); err != nil {
			return "", err
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "run_dir: %q\n", dir)
	if w.web {
		text.WriteString("web: {listen: '127.0.0.1:0', control: true}\n")
	}
	text.WriteString("nics:\n")
	for i, keys := range nics {
		if w.pair && !w.noSwitch {
			keys += "\n    switch: pair"
		}
		fmt.Fprintf(&text, "  - name: %s\n    %s\n", nicNames[i], strings.Join(append([]string{keys}, w.Keys()...), "\n    "))
		if w.segments != "" {
			fmt.Fprintf(&text, "    write_segments: %s\n", w.segments)
		}
		if !w.share {
			text.WriteString("    access: {mode: 0600}\n")
		}
		if folder != "" {
			fmt.Fprintf(&text, "    capture: {file: %q, snaplen: %d", filepath.Join(folder, nicNames[i]+".pcapng"), w.snap)
			if w.keep != "" {
				fmt.Fprintf(&text, ", keep: %q", w.keep)
			}
			text.WriteString("}\n")
		}
	}
	return text.String(), nil
}

// nics returns the keys of each NIC that differ between NICs.
func (w *wish) nics(dir string) (keys []string, err error) {
	switch {
	case w.pair && w.port == "unix":
		for i := range nicNames {
			link := func(n int) string { return filepath.Join(dir, "link_"+nicNames[n]) }
			keys = append(keys, fmt.Sprintf("addresses: [198.18.0.%d/24]\n    port: {type: unix, local: %q, remote: %q}", i+1, link(i), link(1-i)))
		}
		return keys, nil
	case w.pair:
		addrs, err := freeLoopback(w.first)
		if err != nil {
			return nil, err
		}
		w.chosen = addrs[:]
		for _, a := range addrs {
			keys = append(keys, fmt.Sprintf("port: {type: %s, address: %s}", w.port, a))
		}
		return keys, nil
	}
	place := w.place
	if place == "" {
		if place, err = outward(); err != nil {
			return nil, err
		}
	}
	where := "interface"
	if _, err := netip.ParseAddr(place); err == nil {
		where = "address"
	}
	return []string{fmt.Sprintf("port: {type: %s, %s: %q}", w.port, where, place)}, nil
}

// freeLoopback finds two loopback addresses without a NIC, from a first one on. It skips 127.0.0.1, which programs use for the
// local host.
func freeLoopback(first byte) (addrs [2]netip.Addr, err error) {
	n := 0
	for i := first + 2; i < 255 && n < len(addrs); i++ {
		a := netip.AddrFrom4([4]byte{127, 0, 0, i})
		if free(a) {
			addrs[n] = a
			n++
		}
	}
	if n < len(addrs) {
		return addrs, errors.New("no two addresses of 127.0.0.0/24 are free: set lo up with IPv4, or use --port unix, which needs no network")
	}
	return addrs, nil
}

// free reports whether nothing has bound RoCEv2's UDP port of an address.
func free(a netip.Addr) bool {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, bth.UDPPort)))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// outward returns the interface of the default route. Without such a route it returns the first interface that is up
// and has an address; this may be the loopback interface.
func outward() (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		// An interrupted dump is acceptable: routes may change at any time.
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return "", fmt.Errorf("routes: %w", err)
		}
		if len(routes) == 0 {
			continue
		}
		best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		if i, err := net.InterfaceByIndex(best.LinkIndex); err == nil {
			return i.Name, nil
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	loopback := ""
	for _, i := range all {
		addrs, err := i.Addrs()
		switch {
		case err != nil || len(addrs) == 0 || i.Flags&net.FlagUp == 0:
		case i.Flags&net.FlagLoopback != 0:
			loopback = i.Name
		default:
			return i.Name, nil
		}
	}
	if loopback == "" {
		return "", errors.New("no interface is up with an address; set one up, or use --port unix with --pair")
	}
	return loopback, nil
}
