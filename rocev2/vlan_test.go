package rocev2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// vlanConfig configures a NIC with an address outside VLANs and others in 10 and 20.
func vlanConfig(mac inet.MAC, host int) Config {
	cfg := testConfig(mac, fmt.Sprintf("10.0.0.%d/24", host))
	for _, id := range []uint16{10, 20} {
		cfg.VLANs = append(cfg.VLANs, VLAN{ID: id, Addrs: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("fd%02d::%d/64", id, host)), netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/24", id, host))}})
	}
	return cfg
}

// place returns the index of an address in the GID table.
func place(t testing.TB, n *NIC, addr string) uint8 {
	t.Helper()
	for _, e := range n.GIDs() {
		if e.GID == gid(addr) {
			return e.Index
		}
	}
	t.Fatalf("no GID of %s: %v", addr, n.GIDs())
	return 0
}

// tagOf returns the tag of a frame, -1 if it has none.
func tagOf(b []byte) (priority, vlan int) {
	if binary.BigEndian.Uint16(b[12:]) != inet.TypeVLAN {
		return -1, -1
	}
	tci := int(binary.BigEndian.Uint16(b[14:]))
	return tci >> 13, tci & 0xfff
}

func TestVLANTable(t *testing.T) {
	n := newNIC(t, vlanConfig(macA, 1))
	var got []string
	for _, e := range n.GIDs() {
		got = append(got, fmt.Sprint(e.VLAN, " ", e.GID.Addr()))
	}
	want := []string{"0 10.0.0.1", "0 fe80::ff:fe00:a", "10 10.10.0.1", "10 fd10::1", "20 10.20.0.1", "20 fd20::1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	twice := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	for _, v := range []VLAN{{ID: 0}, {ID: 4095}, {ID: 10, Addrs: twice}} {
		cfg := testConfig(macA, "10.0.0.1/24")
		cfg.VLANs = []VLAN{v}
		if _, err := New(cfg); !errors.Is(err, stack.ErrVLAN) && !errors.Is(err, stack.ErrAddress) {
			t.Errorf("%v: %v", v, err)
		}
	}
}

// TestVLANExchanges: the NIC answers queries in their VLAN, if the address is in it.
func TestVLANExchanges(t *testing.T) {
	const ask, answer = "0001080006040001", "0001080006040002"
	arp := func(tag, target string) string {
		return "ffffffffffff" + hexMACB + tag + "0806" + ask + hexMACB + "0a0a0002" + "000000000000" + target
	}
	for _, c := range []struct{ name, in, out, drop string }{
		{"tagged", arp("8100 000a", "0a0a0001"), hexMACB + hexMACA + "8100 000a 0806" + answer + hexMACA + "0a0a0001" + hexMACB + "0a0a0002", ""},
		{"tagged, with a priority", arp("8100 a00a", "0a0a0001"), hexMACB + hexMACA + "8100 000a 0806" + answer + hexMACA + "0a0a0001" + hexMACB + "0a0a0002", ""},
		{"a priority alone", arp("8100 a000", "0a000001"), hexMACB + hexMACA + "0806" + answer + hexMACA + "0a000001" + hexMACB + "0a0a0002", ""},
		{"an address of no VLAN", arp("8100 000a", "0a000001"), "", ""},
		{"an address of another VLAN", arp("8100 000a", "0a140001"), "", ""},
		{"an address of a VLAN, untagged", arp("", "0a0a0001"), "", ""},
		{"a strange VLAN", arp("8100 000b", "0a0a0001"), "", "rx_dropped_vlan"},
		{"half a tag", hexMACA + hexMACB + "8100 00", "", "rx_dropped_short"},
		{"two tags", arp("8100 000a 8100 000a", "0a0a0001"), "", "rx_dropped_ethertype"},
		{"somebody else has the address in another VLAN", "ffffffffffff" + hexMACB + "8100 0014 0806" + ask + hexMACB + "0a0a0001" + "000000000000" + "0a0a0001", "", ""},
		{"somebody else has the address", "ffffffffffff" + hexMACB + "8100 000a 0806" + ask + hexMACB + "0a0a0001" + "000000000000" + "0a0a0001", "", "rx_dropped_conflict"},
	} {
		n := newNIC(t, vlanConfig(macA, 1))
		n.Receive(0, unhex(t, c.in), 0)
		var got []byte
		for _, w := range transmit(n, 0) {
			got = append(got, w.b...)
		}
		if want := unhex(t, c.out); !bytes.Equal(got, want) {
			t.Errorf("%s: answer\n%x, want\n%x", c.name, got, want)
		}
		if c.drop != "" && counter(t, n, c.drop) != 1 || c.drop == "" && n.ctr.RxDropped() != 0 {
			t.Errorf("%s: %v", c.name, n.CounterSnapshot())
		}
	}
}

// TestVLANTraffic: two NICs resolve each other in a VLAN by ARP or neighbour discovery. All frames, single or
// super-frames, have the tag with its priority. The NICs answer echo requests there.
func TestVLANTraffic(t *testing.T) {
	for _, c := range []struct {
		us, them       string
		sl, tclass     uint8
		priority, vlan int
	}{
		{"10.10.0.1", "10.10.0.2", 5, 0, 5, 10},
		{"10.20.0.1", "10.20.0.2", 0, 46 << 2, 5, 20},
		{"fd20::1", "fd20::2", 0, 0, 0, 20},
		{"10.0.0.1", "10.0.0.2", 5, 0, -1, -1},
	} {
		cfg := vlanConfig(macA, 1)
		cfg.Offload = superOffload()
		a, b := newNIC(t, cfg), newNIC(t, vlanConfig(macB, 2))
		packets := write(0x22, 0, 65536, 4096)
		q, peer, s := plug(t, a, 0x11, qp.RC, newScript(packets...)), (*QueuePair)(nil), newScript()
		peer = plug(t, b, 0x22, qp.RC, s)
		var err error
		av := AddressVector{SGIDIndex: place(t, a, c.us), DGID: gid(c.them), SL: c.sl, TrafficClass: c.tclass}
		if q.path, err = a.net.NewPath(0, av); err != nil {
			t.Fatal(err)
		}
		connect(t, b, peer, place(t, b, c.them), c.us, nil)
		discardAll(b) // its own query
		a.sch.activate(q)
		for range 3 { // query, answer, data
			for _, w := range transmit(a, 0) {
				checkTag(t, w, c.priority, c.vlan)
				b.Receive(0, w.b, w.segSize)
			}
			for _, w := range transmit(b, 0) {
				if _, vlan := tagOf(w.b); vlan != c.vlan {
					t.Errorf("%s: an answer in VLAN %d", c.us, vlan)
				}
				a.Receive(0, w.b, w.segSize)
			}
		}
		if len(s.got) != len(packets) || b.ctr.RxDropped() != 0 {
			t.Errorf("%s: %d of %d packets, %v", c.us, len(s.got), len(packets), b.CounterSnapshot())
		}
	}
}

// checkTag checks a frame and its segments.
func checkTag(t *testing.T, w wire, priority, vlan int) {
	t.Helper()
	for i := range link.Segments(w.b, w.segSize) {
		f := link.Segment(nil, w.b, w.segSize, i)
		p, v := tagOf(f)
		typ, l2, _ := inet.EtherType(f)
		switch {
		case v != vlan:
			t.Errorf("VLAN %d, want %d: %x", v, vlan, f[:24])
		case typ != inet.TypeARP && f[l2+6] != inet.ProtoICMPv6 && p != priority:
			t.Errorf("priority %d, want %d: %x", p, priority, f[:24])
		}
		if _, body, _, ok := inet.UDPBody(f); ok && bth.CheckICRC(f[l2:]) != nil {
			t.Errorf("ICRC behind %d bytes of headers", body)
		}
	}
	if _, _, _, ok := inet.UDPBody(w.b); ok && link.Segments(w.b, w.segSize) == 1 && w.segSize > 0 {
		t.Error("a super-frame of one segment")
	}
}

func TestVLANEcho(t *testing.T) {
	n := newNIC(t, vlanConfig(macA, 1))
	f := echo(false, 8)
	f = slices.Concat(f[:12], []byte{0x81, 0, 0x60, 10}, f[12:])
	n.Receive(0, f, 0)
	if counter(t, n, "rx_dropped_addr") != 1 { // 10.0.0.1 is in no VLAN
		t.Errorf("%v", n.CounterSnapshot())
	}
	copy(f[34:], []byte{10, 10, 0, 1})
	inet.SealIPv4(f[18:38])
	n.Receive(0, f, 0)
	out := transmit(n, 0)
	if len(out) != 1 {
		t.Fatalf("%d answers", len(out))
	}
	if p, v := tagOf(out[0].b); p != 0 || v != 10 || out[0].b[38] != icmpEchoReply {
		t.Errorf("%x", out[0].b)
	}
}

// TestVLANPaths: a path is in the VLAN of its source, with the gateway of that VLAN. Stations with the same address
// in different VLANs are different.
func TestVLANPaths(t *testing.T) {
	cfg := vlanConfig(macA, 1)
	cfg.VLANs[1].Addrs = append(cfg.VLANs[1].Addrs, netip.MustParsePrefix("10.10.0.7/24"))
	cfg.Gateways = []netip.Addr{netip.MustParseAddr("10.20.0.254")}
	n := newNIC(t, cfg)
	from := func(src, dst string) (stack.Path, error) {
		return n.net.NewPath(0, AddressVector{SGIDIndex: place(t, n, src), DGID: gid(dst)})
	}
	for _, c := range []struct {
		src, dst, hop string
		err           error
	}{
		{"10.0.0.1", "10.10.0.2", "", ErrNoRoute},
		{"10.10.0.1", "10.0.0.2", "", ErrNoRoute},
		{"10.10.0.1", "192.0.2.1", "", ErrNoRoute},
		{"10.20.0.1", "192.0.2.1", "10.20.0.254", nil},
		{"10.20.0.1", "10.20.0.9", "10.20.0.9", nil},
	} {
		p, err := from(c.src, c.dst)
		if !errors.Is(err, c.err) || err == nil && p.Next.Addr != gid(c.hop) {
			t.Errorf("%s to %s: %v", c.src, c.dst, err)
		}
	}
	p, _ := from("10.10.0.1", "10.10.0.9")
	q, _ := from("10.10.0.7", "10.10.0.9")
	if p.Next == q.Next || p.Next == nil || p.Next.VLAN != 10 || q.Next.VLAN != 20 {
		t.Error("one station in two VLANs")
	}
	if e, _, ok := n.Source(gid("10.20.0.9")); !ok || e.GID != gid("10.20.0.1") {
		t.Errorf("source of 10.20.0.9: %v %v", e, ok)
	}
	wide := testConfig(macA)
	wide.VLANs = []VLAN{{ID: 30, Addrs: []netip.Prefix{netip.MustParsePrefix("10.30.9.5/16")}}, {ID: 40, Addrs: []netip.Prefix{netip.MustParsePrefix("10.30.9.1/24")}}}
	if e, _, ok := newNIC(t, wide).Source(gid("10.30.9.77")); !ok || e.VLAN != 40 {
		t.Errorf("source of 10.30.9.77: %v %v", e, ok)
	}
	if e, _, ok := n.Source(gid("192.0.2.1")); !ok || e.GID != gid("10.20.0.1") {
		t.Errorf("source of 192.0.2.1: %v %v", e, ok)
	}
}

// TestVLANsAreApart: a packet for an address of the NIC does not reach it through another VLAN.
func TestVLANsAreApart(t *testing.T) {
	a, b := newNIC(t, vlanConfig(macA, 1)), newNIC(t, vlanConfig(macB, 2))
	q, s := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 0, 64)...)), newScript()
	peer := plug(t, b, 0x22, qp.RC, s)
	connect(t, a, q, place(t, a, "10.10.0.1"), "10.10.0.2", &macB)
	connect(t, b, peer, place(t, b, "10.10.0.2"), "10.10.0.1", &macA)
	a.sch.activate(q)
	f := transmit(a, 0)[0].b
	other := slices.Clone(f)
	other[15] = 20
	b.Receive(0, other, 0)
	b.Receive(0, slices.Concat(f[:12], f[16:]), 0)
	if len(s.got) != 0 || counter(t, b, "rx_dropped_addr") != 2 {
		t.Errorf("%d packets came by other VLANs", len(s.got))
	}
	b.Receive(0, f, 0)
	if len(s.got) != 1 {
		t.Error("a packet did not come by its own VLAN")
	}
}

// TestVLANOfCNP: a CNP has the priority of its own code point.
func TestVLANOfCNP(t *testing.T) {
	cfg := vlanConfig(macA, 1)
	cfg.CNPClass = ClassOf(48, 0)
	n := newNIC(t, cfg)
	var cnp bth.Packet
	cnp.SetCNP(0x22)
	q := plug(t, n, 0x11, qp.RC, newScript(cnp))
	connect(t, n, q, place(t, n, "10.10.0.1"), "10.10.0.2", &macB)
	n.sch.activate(q)
	if p, v := tagOf(transmit(n, 0)[0].b); p != 6 || v != 10 {
		t.Errorf("priority %d, VLAN %d", p, v)
	}
}

// TestVLANGroups: the NIC joins a group in each of its networks.
func TestVLANGroups(t *testing.T) {
	for _, group := range []string{"239.0.0.7", "ff15::7"} {
		n := newNIC(t, vlanConfig(macA, 1))
		if err := n.JoinGroup(0, gid(group)); err != nil {
			t.Fatal(err)
		}
		n.Advance(mono.Time(1))
		if got := vlansOf(transmit(n, 0)); !slices.Equal(got, []int{-1, 10, 20}) {
			t.Errorf("%s: reports in %v", group, got)
		}
		from := map[string]string{"239.0.0.7": "10.10.0.1", "ff15::7": "fd10::1"}[group]
		p, err := n.net.NewGroupPath(AddressVector{SGIDIndex: place(t, n, from), DGID: gid(group), SL: 3})
		if priority, vlan := tagOf(p.Headers()); err != nil || priority != 3 || vlan != 10 {
			t.Errorf("a path to %s: priority %d, VLAN %d, %v", group, priority, vlan, err)
		}
	}
}

func vlansOf(frames []wire) (out []int) {
	for _, w := range frames {
		_, vlan := tagOf(w.b)
		out = append(out, vlan)
	}
	return out
}

// TestVLANAnnouncements: when the link comes up, the NIC announces each address in its VLAN.
func TestVLANAnnouncements(t *testing.T) {
	n := newNIC(t, vlanConfig(macA, 1))
	for _, up := range []bool{false, true} {
		if err := n.SetLink(0, up, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := vlansOf(transmit(n, 0)); !slices.Equal(got, []int{-1, -1, 10, 10, 20, 20}) {
		t.Errorf("announced in %v", got)
	}
}

// TestVLANMTU: the MTU limits the packet length without the tag.
func TestVLANMTU(t *testing.T) {
	for more, want := range map[int]int{0: 1, 4: 0} {
		cfg := vlanConfig(macA, 1)
		cfg.MTU = inet.IPv4Len + inet.UDPLen + minRoCE + 1024
		n := newNIC(t, cfg)
		q := plug(t, n, 0x11, qp.RC, newScript(sends(0x22, 0, 1024+more)...))
		connect(t, n, q, place(t, n, "10.10.0.1"), "10.10.0.2", &macB)
		n.sch.activate(q)
		if got := len(transmit(n, 0)); got != want {
			t.Errorf("%d bytes too long: %d frames", more, got)
		}
	}
}
